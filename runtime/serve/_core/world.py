"""What the controller knows of the cluster, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runtime._extension.news import NodeChanged, NodeState

HEAD = "node:__internal_head__"
"""Resource of the head node."""


@dataclass
class World:
    """See the module.

    Attributes:
        unique: makes the last part of a replica's id.
        token: makes what callers show a replica.
        fits: whether a node has so much free; called on a thread.
        wall_offset_s: wall-clock time less the loop's.
        replica_class, ingress_class: import paths.
        nodes: those that are not dead, by id.
    """

    unique: Callable[[], str]
    token: Callable[[], bytes]
    fits: Callable[[Mapping[str, float]], bool]
    wall_offset_s: float
    replica_class: str
    ingress_class: str
    nodes: dict[str, NodeChanged] = field(default_factory=dict)

    def learn(self, node: NodeChanged) -> None:
        """A node has changed."""
        if node.state is NodeState.DEAD:
            self.nodes.pop(node.node_id, None)
        else:
            self.nodes[node.node_id] = node

    @property
    def draining(self) -> set[str]:
        """Nodes that are to leave."""
        return {node_id for node_id, node in self.nodes.items() if node.state is NodeState.DRAINING}

    @property
    def head(self) -> str | None:
        """The head node, once it is known."""
        return next((node_id for node_id, node in self.nodes.items() if HEAD in node.resources), None)

    def resources(self) -> dict[str, Mapping[str, float]]:
        """Total resources of the nodes that stay."""
        return {
            node_id: node.resources for node_id, node in self.nodes.items() if node.state is NodeState.ALIVE
        }

    def wall_s(self, now: float) -> float:
        """Seconds since the epoch."""
        return now + self.wall_offset_s
