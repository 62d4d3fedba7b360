"""A cluster of AWS for tests: a spec, its node types and its provider."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from autoscaler.provider import (
    LaunchRequest,
    LaunchResult,
    MachineTags,
    NodeType,
    Offer,
    Problem,
)
from clusterctl.launcher import node_types
from clusterctl.providers.aws.provider import AwsMachines
from clusterctl.providers.protocol import Seat
from clusterctl.providers.registry import make
from clusterctl.spec.load import load_text
from tests.testbed.aws import REGION, Aws

SPEC = """\
cluster_name: demo
provider: {{type: aws, region: {region}, endpoint_url: "{url}"{provider}}}
{auth}
head_node_type: head
available_node_types:
  head: {{node_config: {{InstanceType: m5.large{head}}}}}
  worker: {{node_config: {{InstanceType: c5.xlarge{config}}}{worker}, min_workers: 1, max_workers: 8}}
"""


class Cluster:
    """A spec, its node types and its provider."""

    def __init__(self, aws: Aws, folder: Path, **parts: str) -> None:
        filled = {name: parts.get(name, "") for name in ("provider", "auth", "head", "config", "worker")}
        self.spec = load_text(
            SPEC.format(url=parts.get("url", aws.url), region=parts.get("region", REGION), **filled)
        )
        self.kinds = node_types.node_types(self.spec, {})
        self.head, self.worker = self.kinds
        self._folder = folder
        self.provider = self.provider_of("demo-1")

    def provider_of(self, cluster_id: str, seat: Seat = Seat.OPERATOR, **settings: str) -> AwsMachines:
        found = make(
            self.spec,
            cluster_id,
            {"owner": "me", "folder": str(self._folder / cluster_id), **settings},
            seat,
        )
        assert isinstance(found, AwsMachines)
        return found

    def problems(self) -> list[Problem]:
        return self.provider.check(self.kinds)

    def create(
        self, *names: str, kind: NodeType | None = None, offer: Offer | None = None, **more: Any
    ) -> LaunchResult:
        kind = kind or self.worker
        role = MachineTags.HEAD if kind is self.head else MachineTags.WORKER
        offer = offer or self.provider.offers(kind)[0]
        tags = {MachineTags.CLUSTER_ID: more.get("cluster_id", "demo-1"), MachineTags.ROLE: role}
        provider = more.get("provider", self.provider)
        return provider.create(LaunchRequest(more.get("token", "t"), kind, len(names), offer, tags, names))


def without_default_network(aws: Aws) -> None:
    """Takes away what a new account has."""
    default = aws.ec2.get_default_vpc()
    for subnets in aws.ec2.subnets.values():
        subnets.clear()
    aws.ec2.vpcs.pop(default.id)


Make = Callable[..., Cluster]
