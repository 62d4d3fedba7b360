"""The states of an execution."""

from __future__ import annotations

from enum import Enum

from runtime._core.fsm import Edge


class State(Enum):
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"


class Input(Enum):
    ALL_TAKEN = "the consumer has everything"
    CLOSED = "the consumer has left"
    ERROR = "a task failed"


TRANSITIONS = {
    (State.RUNNING, Input.ALL_TAKEN): Edge(State.FINISHED, "the last bundle went to the consumer"),
    (State.RUNNING, Input.CLOSED): Edge(State.FINISHED, "the consumer wants no more"),
    (State.RUNNING, Input.ERROR): Edge(State.FAILED, "a task failed, and no failure is left to be forgiven"),
}
