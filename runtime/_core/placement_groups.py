"""The life of a placement group: bundles reserved in two phases, and again when a node with some of them
dies.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from runtime._core.fsm import Edge


class GroupState(Enum):
    """The values are the names on the wire."""

    PENDING = "PENDING"
    PREPARED = "PREPARED"
    CREATED = "CREATED"
    RESCHEDULING = "RESCHEDULING"
    REMOVED = "REMOVED"


class GroupEvent(Enum):
    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"
    NODE_LOST = "node lost"
    REMOVED = "removed"


_S, _E = GroupState, GroupEvent

TRANSITIONS: Final[Mapping[tuple[GroupState, GroupEvent], Edge[GroupState]]] = {
    (_S.PENDING, _E.PREPARED): Edge(_S.PREPARED, "every node set its bundles aside"),
    (_S.PREPARED, _E.COMMITTED): Edge(_S.CREATED, "every node offers its bundles"),
    (_S.PREPARED, _E.ABORTED): Edge(_S.PENDING, "a node refused or died between the phases"),
    (_S.CREATED, _E.NODE_LOST): Edge(_S.RESCHEDULING, "a node with bundles died"),
    (_S.RESCHEDULING, _E.NODE_LOST): Edge(_S.RESCHEDULING, "another node with bundles died"),
    (_S.RESCHEDULING, _E.COMMITTED): Edge(_S.CREATED, "the missing bundles have nodes again"),
    (_S.PENDING, _E.REMOVED): Edge(_S.REMOVED, "removed, or its job ended"),
    (_S.PREPARED, _E.REMOVED): Edge(_S.REMOVED, "removed, or its job ended"),
    (_S.CREATED, _E.REMOVED): Edge(_S.REMOVED, "removed, or its job ended"),
    (_S.RESCHEDULING, _E.REMOVED): Edge(_S.REMOVED, "removed, or its job ended"),
}
