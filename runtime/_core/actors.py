"""The life of an actor: its states, its restart budget, and how long it waits before the next start."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from runtime._core.fsm import Edge

UNLIMITED = -1
"""`max_restarts` without a bound."""

SHORT_LIFE_S = 5.0
"""A life shorter than this makes the next start wait, longer each time."""

LONGEST_DELAY_S = 10.0


class ActorState(Enum):
    """The values are the names on the wire."""

    DEPENDENCIES_UNREADY = "DEPENDENCIES_UNREADY"
    PENDING_CREATION = "PENDING_CREATION"
    ALIVE = "ALIVE"
    RESTARTING = "RESTARTING"
    DEAD = "DEAD"


class ActorEvent(Enum):
    ARGUMENTS_READY = "constructor's arguments are there"
    STARTED = "started"
    LOST = "process lost, restarts left"
    LOST_FOR_GOOD = "process lost, no restarts left"
    CONSTRUCTOR_RAISED = "constructor raised"
    UNPLACEABLE = "no node can ever hold it"
    UNSTARTABLE = "environment or constructor call refused"
    EXITED = "exited"
    KILLED = "killed"
    ABANDONED = "owner or job ended"


_U, _P = ActorState.DEPENDENCIES_UNREADY, ActorState.PENDING_CREATION
_A, _R, _D = ActorState.ALIVE, ActorState.RESTARTING, ActorState.DEAD

TRANSITIONS: Final[Mapping[tuple[ActorState, ActorEvent], Edge[ActorState]]] = {
    (_U, ActorEvent.ARGUMENTS_READY): Edge(_P, "the values of its constructor's arguments are there"),
    (_U, ActorEvent.CONSTRUCTOR_RAISED): Edge(_D, "an argument of its constructor is an error"),
    (_U, ActorEvent.UNPLACEABLE): Edge(_D, "its placement group was removed"),
    (_U, ActorEvent.KILLED): Edge(_D, "it was killed"),
    (_U, ActorEvent.ABANDONED): Edge(_D, "its owner, job or placement group ended"),
    (_P, ActorEvent.STARTED): Edge(_A, "its constructor returned"),
    (_R, ActorEvent.STARTED): Edge(_A, "its constructor returned"),
    (_P, ActorEvent.LOST): Edge(_R, "its process ended and restarts are left"),
    (_A, ActorEvent.LOST): Edge(_R, "its process ended and restarts are left"),
    (_R, ActorEvent.LOST): Edge(_R, "its process ended again and restarts are left"),
    (_P, ActorEvent.LOST_FOR_GOOD): Edge(_D, "its process ended and no restarts are left"),
    (_A, ActorEvent.LOST_FOR_GOOD): Edge(_D, "its process ended and no restarts are left"),
    (_R, ActorEvent.LOST_FOR_GOOD): Edge(_D, "its process ended and no restarts are left"),
    (_P, ActorEvent.CONSTRUCTOR_RAISED): Edge(_D, "its constructor raised"),
    (_R, ActorEvent.CONSTRUCTOR_RAISED): Edge(_D, "its constructor raised"),
    (_P, ActorEvent.UNPLACEABLE): Edge(_D, "no node can ever hold it"),
    (_P, ActorEvent.UNSTARTABLE): Edge(_D, "its environment cannot be built, or its call is refused"),
    (_R, ActorEvent.UNPLACEABLE): Edge(_D, "no node can ever hold it"),
    (_R, ActorEvent.UNSTARTABLE): Edge(_D, "its environment cannot be built, or its call is refused"),
    (_P, ActorEvent.EXITED): Edge(_D, "its process ended as intended"),
    (_A, ActorEvent.EXITED): Edge(_D, "its process ended as intended"),
    (_R, ActorEvent.EXITED): Edge(_D, "its process ended as intended"),
    (_P, ActorEvent.KILLED): Edge(_D, "it was killed"),
    (_A, ActorEvent.KILLED): Edge(_D, "it was killed"),
    (_R, ActorEvent.KILLED): Edge(_D, "it was killed"),
    (_P, ActorEvent.ABANDONED): Edge(_D, "its owner, job or placement group ended"),
    (_A, ActorEvent.ABANDONED): Edge(_D, "its owner, job or placement group ended"),
    (_R, ActorEvent.ABANDONED): Edge(_D, "its owner, job or placement group ended"),
}


def has_restart_left(restarts: int, max_restarts: int) -> bool:
    """Whether an actor that restarted `restarts` times may do so once more."""
    return max_restarts == UNLIMITED or restarts < max_restarts


def after_loss(restarts: int, max_restarts: int, intended: bool) -> ActorEvent:
    """The event that the end of an actor's process stands for."""
    if intended:
        return ActorEvent.EXITED
    return ActorEvent.LOST if has_restart_left(restarts, max_restarts) else ActorEvent.LOST_FOR_GOOD


def restart_delay_s(short_lives: int) -> float:
    """How long the next start waits after `short_lives` short lives in a row: nothing, then doubling."""
    if short_lives <= 1:
        return 0.0
    return float(min(0.1 * 2 ** min(short_lives - 2, 16), LONGEST_DELAY_S))
