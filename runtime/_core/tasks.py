"""The life of a task, or of an actor's call, as its owner sees it. Pure.

The table is on the path of every task: a step costs one look-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from .fsm import Edge, InvalidTransition


class TaskState(IntEnum):
    """Where a task is. An int, because hashing a plain Enum member costs more than the rest of the step."""

    WAITING_FOR_ARGUMENTS = 0
    QUEUED = 1
    PUSHED = 2
    CANCELLING = 3
    CRASHED = 4
    FINISHED = 5


_W, _Q, _P = TaskState.WAITING_FOR_ARGUMENTS, TaskState.QUEUED, TaskState.PUSHED
_C, _X, _F = TaskState.CANCELLING, TaskState.CRASHED, TaskState.FINISHED

TRANSITIONS: Final[Mapping[tuple[TaskState, TaskState], Edge[TaskState]]] = {
    (_W, _Q): Edge(_Q, "the values of its arguments are there"),
    (_W, _F): Edge(_F, "cancelled, or an argument is an error"),
    (_Q, _P): Edge(_P, "a worker has room for it"),
    (_Q, _F): Edge(_F, "cancelled, or no node can ever run it"),
    (_P, _F): Edge(_F, "the worker answered, or it was cancelled while its actor was out of reach"),
    (_P, _Q): Edge(_Q, "given back unstarted, or it may run again"),
    (_P, _W): Edge(_W, "given back, as arguments are lost"),
    (_P, _C): Edge(_C, "cancelled while a worker has it"),
    (_P, _X): Edge(_X, "its worker died and it may not run again"),
    (_C, _F): Edge(_F, "the worker answered, gave it back, or died"),
    (_X, _F): Edge(_F, "the node agent said why, or did not in time"),
    (_F, _W): Edge(_W, "every copy of a result is lost"),
}


def step(task_id: bytes, state: TaskState, target: TaskState) -> TaskState:
    """Returns `target` if the table allows it.

    Raises:
        InvalidTransition: it does not.
    """
    if (state, target) not in TRANSITIONS:
        raise InvalidTransition(f"task {task_id.hex()}", state, target, ())
    return target
