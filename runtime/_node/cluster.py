"""The cluster as the control store describes it to this node, in the form that placement reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from runtime._core.lease_queue import NodeTable
from runtime._core.ledger import Ledger
from runtime._core.placement import NodeView
from runtime._wire.messages.base import NodeInfo
from runtime._wire.messages.control import NodeLoad


class Cluster:
    """All nodes; our own accounts are live, the others as last reported.

    Args:
        node_id: of this node.
        ledger: our own accounts.
        labels: our own labels.
        on_dead: called once for each node that died.
    """

    def __init__(
        self, node_id: bytes, ledger: Ledger, labels: dict[str, str], on_dead: Callable[[NodeInfo], None]
    ) -> None:
        self.node_id = node_id
        self.table = NodeTable(NodeView(node_id, ledger.total, ledger.available, labels))
        self.notes: dict[str, str] = {}
        self._infos: dict[bytes, NodeInfo] = {}
        self._dead: set[bytes] = set()
        self._on_dead = on_dead

    def update(self, nodes: Iterable[NodeInfo], whole: bool = False) -> None:
        """Takes the changed nodes in, or with `whole` all that there are."""
        nodes = list(nodes)
        if whole:
            seen = {info.node_id for info in nodes}
            for node_id in [node_id for node_id in self.table.others if node_id not in seen]:
                self._forget(node_id)
        for info in nodes:
            if info.node_id == self.node_id:
                if info.state == "DEAD":
                    self._on_dead(info)
                continue
            if info.state == "DEAD":
                self._dead.add(info.node_id)
                known = self._infos.pop(info.node_id, None)
                self._forget(info.node_id)
                if known is not None:
                    self._on_dead(info)
                continue
            self._infos[info.node_id] = info
            self.table.others[info.node_id] = NodeView(
                info.node_id, info.total, dict(info.available), info.labels, info.state == "ALIVE"
            )

    def bury(self, node_ids: Iterable[bytes]) -> None:
        """Takes in which nodes have died before this one joined, or while it was not told."""
        for node_id in node_ids:
            self._dead.add(node_id)
            known = self._infos.get(node_id)
            self._forget(node_id)
            if known is not None:
                self._on_dead(known)

    def update_loads(self, loads: Iterable[NodeLoad]) -> None:
        """Takes in what is there and free on nodes that are known."""
        for load in loads:
            view = self.table.others.get(load.node_id)
            if view is not None:
                view.total, view.available = load.total, load.available

    def drain(self) -> None:
        """Nothing new is placed on this node."""
        self.table.local.schedulable = False

    def resume(self) -> None:
        """This node takes work again."""
        self.table.local.schedulable = True

    def others(self) -> list[bytes]:
        """The ids of the other nodes that are alive."""
        return list(self._infos)

    def address_of(self, node_id: bytes) -> str | None:
        """host:port of a node's agent, None when it is not alive."""
        info = self._infos.get(node_id)
        return info.address if info is not None else None

    def is_dead(self, node_id: bytes) -> bool:
        """Whether a node has died; one that we know nothing of may be new."""
        return node_id in self._dead

    def _forget(self, node_id: bytes) -> None:
        self._infos.pop(node_id, None)
        self.table.forget(node_id)
