"""`provider: {type: aws}`: machines of Amazon EC2."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from clusterctl.providers.cloud_config import CloudConfig
from clusterctl.spec.kinds import EnvString, Struct, env_string


class AwsKeyPair(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An existing key pair of EC2; auth.ssh_private_key is its private half."""

    key_name: EnvString


class AwsProvider(CloudConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="aws"):
    """Machines of Amazon EC2. `node_config` of a node type is what EC2's RunInstances takes, under its own names."""

    vpc_id: Annotated[
        str,
        env_string(
            "The network. Default: that of the subnets, else the region's default one, else a new one for the cluster."
        ),
    ] = ""
    subnet_ids: Annotated[
        list[EnvString],
        Meta(description="Only these subnets; they decide the zones. Default: all of the network."),
    ] = []
    ssh_cidr_blocks: Annotated[
        list[EnvString],
        Meta(
            description="Addresses that may connect by SSH, as 203.0.113.0/24. Default: everybody with the key."
        ),
    ] = []
    tags: Annotated[dict[str, EnvString], Meta(description="Further tags of everything that is made.")] = {}
    key_pair: AwsKeyPair | None = None
    security_group: Annotated[
        dict[str, Any],
        Meta(description="GroupName and IpPermissions, as in EC2, in addition to what the nodes need."),
    ] = {}
    profile: Annotated[str, env_string("Credentials profile on the operator's machine.")] = ""
    endpoint_url: Annotated[str, env_string("Another endpoint of the API of AWS.")] = ""

    @property
    def place(self) -> tuple[str, ...]:
        return (self.region, self.endpoint_url)


CONFIG = AwsProvider
