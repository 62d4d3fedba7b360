"""`provider: {type: gcp}`: machines of Google Compute Engine."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from clusterctl.providers.cloud_config import CloudConfig
from clusterctl.spec.kinds import EnvString, env_string


class GcpProvider(CloudConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="gcp"):
    """Machines of Google Compute Engine. `node_config` of a node type is what the API's instances.insert takes, under
    its own names."""

    project_id: Annotated[str, env_string("Default: the credentials' project.")] = ""
    network: Annotated[
        str, env_string("Network of machines whose node_config names none. Default: default.")
    ] = ""
    subnetwork: Annotated[str, env_string("Subnetwork of these machines. Default: the network's.")] = ""
    firewall: Annotated[
        bool, Meta(description="Create firewall rules for SSH and for traffic among the machines.")
    ] = True
    ssh_sources: Annotated[
        list[EnvString], Meta(description="Address ranges that may connect by SSH. Default: all.")
    ] = []
    service_account: Annotated[
        str,
        env_string(
            "Account of the head, with which it makes workers. Default: the project's for Compute Engine."
        ),
    ] = "default"
    endpoint: Annotated[str, env_string("Another endpoint of the Compute API.")] = ""

    @property
    def place(self) -> tuple[str, ...]:
        return (self.region, self.project_id, self.endpoint)


CONFIG = GcpProvider
