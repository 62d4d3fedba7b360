"""The life of a node, a member of the cluster: its states, and when silence counts as death."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from runtime._core.fsm import Edge

RECONNECT_GRACE_S = 3.0
"""How long a node whose connection broke may take to come back, unless its machine says that its agent has ended."""

REFUSALS = 2
REFUSAL_EVERY_S = 0.25
"""An agent has ended if its machine refuses connections to its port so often in a row: nothing listens there."""

RESTART_GRACE_S = 10.0
"""The same after the control store itself was restarted: every agent has to notice and come back."""

HEARTBEAT_TIMEOUT_S = 10.0
"""Heartbeat timeout of a connected node; agents report at least every 3 s."""


class NodeState(Enum):
    """The values are the names on the wire."""

    ALIVE = "ALIVE"
    DRAINING = "DRAINING"
    DEAD = "DEAD"


class NodeEvent(Enum):
    DRAIN = "drain"
    DRAIN_REFUSED = "drain refused"
    RESUME = "resume"
    CONNECTION_LOST = "connection lost"
    SILENT = "silent"
    LEFT = "left"


TRANSITIONS: Final[Mapping[tuple[NodeState, NodeEvent], Edge[NodeState]]] = {
    (NodeState.ALIVE, NodeEvent.DRAIN): Edge(NodeState.DRAINING, "the autoscaler or a person drains it"),
    (NodeState.DRAINING, NodeEvent.DRAIN): Edge(NodeState.DRAINING, "repeated request"),
    (NodeState.DRAINING, NodeEvent.DRAIN_REFUSED): Edge(NodeState.ALIVE, "work arrived before the drain"),
    (NodeState.DRAINING, NodeEvent.RESUME): Edge(NodeState.ALIVE, "called back: it is needed after all"),
    (NodeState.ALIVE, NodeEvent.RESUME): Edge(NodeState.ALIVE, "it was not draining"),
    (NodeState.ALIVE, NodeEvent.CONNECTION_LOST): Edge(NodeState.DEAD, "its agent did not come back"),
    (NodeState.DRAINING, NodeEvent.CONNECTION_LOST): Edge(NodeState.DEAD, "its agent did not come back"),
    (NodeState.ALIVE, NodeEvent.SILENT): Edge(NodeState.DEAD, "no report within the heartbeat timeout"),
    (NodeState.DRAINING, NodeEvent.SILENT): Edge(NodeState.DEAD, "no report within the heartbeat timeout"),
    (NodeState.ALIVE, NodeEvent.LEFT): Edge(NodeState.DEAD, "it was stopped"),
    (NodeState.DRAINING, NodeEvent.LEFT): Edge(NodeState.DEAD, "it was stopped"),
}


def verdict(
    now: float, state: NodeState, heard_s: float, lost_s: float | None, grace_s: float = RECONNECT_GRACE_S
) -> NodeEvent | None:
    """What silence means for a node at `now`, if anything.

    Args:
        now: seconds, of the same clock as the others.
        state: the node's state.
        heard_s: when its last report arrived.
        lost_s: since when it has no connection; None while connected.
        grace_s: how long it may stay without one. A draining node gets none: it is about to be ended.
    """
    if state is NodeState.DEAD:
        return None
    if lost_s is not None:
        if state is NodeState.DRAINING:
            return NodeEvent.LEFT
        return NodeEvent.CONNECTION_LOST if now - lost_s >= grace_s else None
    return NodeEvent.SILENT if now - heard_s >= HEARTBEAT_TIMEOUT_S else None
