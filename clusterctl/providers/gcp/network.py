"""Where the machines of a cluster are, and the firewall around them. The thin shell of `firewall`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from autoscaler.provider import NodeType, NotFound, ProviderError, Transient

from . import errors, firewall, names
from .api import ComputeApi, Json
from .config import GcpProvider

_FIREWALL_S = 60.0
_ANYWHERE = ("0.0.0.0/0",)


class ClusterNetwork:
    """The network of one cluster.

    Args:
        tag: by which the rules know the cluster's machines. It is first asked for when it is needed.
        api: is first asked for when it is needed.
    """

    def __init__(self, spec: GcpProvider, tag: Callable[[], str], api: Callable[[], ComputeApi]) -> None:
        self._spec = spec
        self._tag = tag
        self._api = api

    def links(self) -> tuple[str, str]:
        """Network and subnetwork of machines whose node_config names none."""
        network, subnetwork = self._spec.network, self._spec.subnetwork
        if not network and not subnetwork:
            network = "default"
        if network and "/" not in network:
            network = f"projects/{self._api().project}/global/networks/{network}"
        if subnetwork and "/" not in subnetwork:
            place = f"projects/{self._api().project}/regions/{self._spec.region}"
            subnetwork = f"{place}/subnetworks/{subnetwork}"
        return network, subnetwork

    def of(self, node_types: Sequence[NodeType]) -> list[str]:
        """Links of the networks of the project in which machines of the types are. Another project's firewall, where a
        network is shared, is its owner's matter.

        Raises:
            NotFound: there is no such subnetwork.
        """
        found = []
        for kind in node_types:
            network, subnetwork = self.links()
            given = kind.node_config.get("networkInterfaces")
            if given:
                network, subnetwork = (str(given[0].get(key) or "") for key in ("network", "subnetwork"))
            if not network and subnetwork:
                if self._project_of(subnetwork) != self._api().project:
                    continue
                name = subnetwork.rpartition("/")[2]
                network = str(self._api().subnetwork(self._spec.region, name)["network"])
            if self._project_of(network) == self._api().project:
                name = network.rpartition("/")[2]
                found.append(f"projects/{self._api().project}/global/networks/{name}")
        return [*dict.fromkeys(found)]

    def make_rules(self, node_types: Sequence[NodeType]) -> list[str]:
        """Makes what is missing, corrects what is wrong; returns the rules' names."""
        if not self._spec.firewall:
            return []
        rules = firewall.rules(self._tag(), self.of(node_types), self._spec.ssh_sources or _ANYWHERE)
        there = {str(rule["name"]): rule for rule in self._api().firewalls()} if rules else {}
        for rule in rules:
            self._ensure(rule, there.get(str(rule["name"])))
        return [str(rule["name"]) for rule in rules]

    def remove_rules(self) -> None:
        """Removes all rules of the cluster, those of an earlier spec, too."""
        for name in firewall.of_cluster(self._api().firewalls(), self._tag()):
            self._remove(name)

    # -- inside

    def _project_of(self, link: str) -> str:
        return link.partition("projects/")[2].partition("/")[0] or self._api().project

    def _ensure(self, wanted: Json, found: Json | None) -> None:
        name = str(wanted["name"])
        if found is not None:
            if firewall.is_same(wanted, found):
                return
            self._remove(name)
        request_id = names.request_id("firewall", name, str(time.time_ns()))
        with contextlib.suppress(errors.AlreadyThere):  # somebody else was faster
            self._finish(f"firewall rule {name}", self._api().insert_firewall(wanted, request_id))

    def _remove(self, name: str) -> None:
        with contextlib.suppress(NotFound):
            self._finish(f"firewall rule {name}", self._api().delete_firewall(name))

    def _finish(self, doing: str, operation: Json) -> None:
        operation = self._api().wait(operation, time.monotonic() + _FIREWALL_S)
        error: ProviderError | None = errors.of_operation(doing, operation)
        if error is None and operation.get("status") != "DONE":
            error = Transient(f"{doing}: it takes longer than {_FIREWALL_S:g} s")
        if error is not None:
            raise error
