"""Which spot machines EC2 is about to take back, as its API tells the head: it marks their requests two minutes before.

The machines read it as well, and drain their nodes. Listed as given up, they are replaced even at `max_workers`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from autoscaler.provider import SPOT, Auth, Config, Machine, MachineState, ProviderError

from . import tagging
from .clients import Clients
from .metadata import NOTICES

log = logging.getLogger(__name__)

_MARKED = ("marked-for-termination", "marked-for-stop", "marked-for-hibernation")


class Notices:
    """The notices to one cluster's machines."""

    def __init__(self, clients: Clients, cluster_id: str) -> None:
        self._clients = clients
        self._filters = [
            *tagging.cluster_filter(cluster_id),
            {"Name": "status-code", "Values": list(_MARKED)},
        ]
        self._may_ask = True

    def told(self, machines: Sequence[Machine]) -> list[Machine]:
        """The machines, with the reason where they were given notice. Without an answer there is none: that a machine
        went is seen in any case."""
        spot = any(one.market == SPOT and one.state is MachineState.RUNNING for one in machines)
        marked = self._marked() if spot and self._may_ask else frozenset()
        return [replace(one, unwanted=NOTICES.means) if one.id in marked else one for one in machines]

    def _marked(self) -> frozenset[str]:
        try:
            found = self._clients.pages(
                "describe_spot_instance_requests",
                "SpotInstanceRequests",
                patience_s=0.0,
                Filters=self._filters,
            )
            return frozenset(str(one.get("InstanceId", "")) for one in found)
        except ProviderError as error:
            if isinstance(error, Auth | Config):
                self._may_ask = False
                log.warning("nobody tells when spot machines are taken back: %s", error)
            return frozenset()
