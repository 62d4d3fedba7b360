"""`provider: {type: aws}`: machines of Amazon EC2."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from clusterctl.spec.kinds import EnvString, ProviderConfig, Struct, listed


class AwsKeyPair(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An existing key pair of EC2; auth.ssh_private_key is its private half."""

    key_name: EnvString


class AwsProvider(ProviderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="aws"):
    """Machines of Amazon EC2. `node_config` of a node type is what EC2's RunInstances takes, under its own names."""

    region: Annotated[str, Meta(description="E.g. us-west-2.", extra={"env": True})]
    availability_zone: Annotated[
        str,
        Meta(
            description="Zones of the region, separated by commas, the first one preferred. Default: all.",
            extra={"env": True},
        ),
    ] = ""
    vpc_id: Annotated[
        str,
        Meta(
            description="The network. Default: that of the subnets, else the region's default one, else a new one for "
            "the cluster.",
            extra={"env": True},
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
    use_internal_ips: Annotated[
        bool,
        Meta(description="Machines get no public address; `clusterctl` must run inside the network."),
    ] = False
    key_pair: AwsKeyPair | None = None
    security_group: Annotated[
        dict[str, Any],
        Meta(description="GroupName and IpPermissions, as in EC2, in addition to what the nodes need."),
    ] = {}
    profile: Annotated[
        str, Meta(description="Credentials profile on the operator's machine.", extra={"env": True})
    ] = ""
    endpoint_url: Annotated[
        str, Meta(description="Another endpoint of the API of AWS.", extra={"env": True})
    ] = ""
    python: Annotated[
        str,
        Meta(
            description="The Python of the machines: 3.11 or newer, the same minor version on all.",
            extra={"env": True},
        ),
    ] = "python3"

    @property
    def zones(self) -> tuple[str, ...]:
        return listed(self.availability_zone)

    @property
    def place(self) -> tuple[str, ...]:
        return (self.region, self.endpoint_url)


CONFIG = AwsProvider
