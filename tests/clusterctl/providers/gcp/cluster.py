"""A cluster of Google Compute Engine for tests: its node types, and machines of them."""

from __future__ import annotations

from autoscaler.provider import (
    ON_DEMAND,
    LaunchRequest,
    LaunchResult,
    MachineTags,
    NodeType,
    Offer,
)
from clusterctl.providers.gcp.provider import GcpMachines

ZONE = "us-west1-a"
SMALL = NodeType("small", node_config={"machineType": "e2-small"}, max_workers=8)
GPU = NodeType(
    "gpu",
    node_config={"guestAccelerators": [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 1}]},
    spot=True,
    min_workers=1,
    max_workers=1,
)


def create(
    provider: GcpMachines,
    *ids: str,
    kind: NodeType = SMALL,
    zone: str = ZONE,
    market: str = ON_DEMAND,
    token: str = "t",
    role: str = MachineTags.WORKER,
    cluster_name: str = "c",
) -> LaunchResult:
    tags = {MachineTags.CLUSTER_NAME: cluster_name, MachineTags.ROLE: role}
    return provider.create(LaunchRequest(token, kind, len(ids), Offer(zone, market), tags, ids))
