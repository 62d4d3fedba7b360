"""`provider: {type: gcp}`: machines of Google Compute Engine."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from clusterctl.spec.kinds import EnvString, ProviderConfig, listed


class GcpProvider(ProviderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="gcp"):
    """Machines of Google Compute Engine. `node_config` of a node type is what the API's instances.insert takes, under
    its own names."""

    region: Annotated[str, Meta(description="E.g. us-west1.", extra={"env": True})]
    availability_zone: Annotated[
        str,
        Meta(
            description="Zones of the region, separated by commas, the first one preferred. Default: all.",
            extra={"env": True},
        ),
    ] = ""
    project_id: Annotated[
        str, Meta(description="Default: the credentials' project.", extra={"env": True})
    ] = ""
    use_internal_ips: Annotated[
        bool,
        Meta(description="Machines get no public address; `clusterctl` must run inside the network."),
    ] = False
    network: Annotated[
        str,
        Meta(
            description="Network of machines whose node_config names none. Default: default.",
            extra={"env": True},
        ),
    ] = ""
    subnetwork: Annotated[
        str, Meta(description="Subnetwork of these machines. Default: the network's.", extra={"env": True})
    ] = ""
    firewall: Annotated[
        bool,
        Meta(description="Create firewall rules for SSH and for traffic among the machines."),
    ] = True
    ssh_sources: Annotated[
        list[EnvString], Meta(description="Address ranges that may connect by SSH. Default: all.")
    ] = []
    service_account: Annotated[
        str,
        Meta(
            description="Account of the head, with which it makes workers. Default: the project's for Compute Engine.",
            extra={"env": True},
        ),
    ] = "default"
    endpoint: Annotated[
        str, Meta(description="Another endpoint of the Compute API.", extra={"env": True})
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
        return (self.region, self.project_id, self.endpoint)


CONFIG = GcpProvider
