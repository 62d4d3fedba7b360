"""The keys of `provider` that every cloud has."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from clusterctl.spec.kinds import ProviderConfig, Python, env_string, listed


class CloudConfig(ProviderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the keys of a cloud."""

    region: Annotated[str, env_string("E.g. us-west-2 on AWS, us-west1 on Google.")]
    availability_zone: Annotated[
        str, env_string("Zones of the region, separated by commas, the first one preferred. Default: all.")
    ] = ""
    use_internal_ips: Annotated[
        bool, Meta(description="Machines get no public address; `clusterctl` must run inside the network.")
    ] = False
    python: Python = "python3"

    @property
    def zones(self) -> tuple[str, ...]:
        return listed(self.availability_zone)
