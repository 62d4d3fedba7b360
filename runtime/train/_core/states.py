"""The states of a run, and what leads from one to the next. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from runtime._core.fsm import Edge


class State(Enum):
    INITIALIZING = "INITIALIZING"
    SCHEDULING = "SCHEDULING"
    RUNNING = "RUNNING"
    RESIZING = "RESIZING"
    RESTARTING = "RESTARTING"
    RESCHEDULING = "RESCHEDULING"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    FINISHED = "FINISHED"
    ERRORED = "ERRORED"
    ABORTED = "ABORTED"


STARTING: Final = (State.SCHEDULING, State.RESCHEDULING, State.RESTARTING, State.RESIZING)
"""In these the workers are made ready for the next attempt."""


class Input(Enum):
    OPENED = "the run's folder is open"
    STARTED = "all workers run the training function"
    RESIZE = "there are more workers"
    WARM_RESTART = "workers failed, and the others go on"
    COLD_RESTART = "workers failed, and all are started anew"
    OVER = "the training function has ended on all workers, or the run is given up"
    CLOSED = "everything is committed, and there is no error"
    CLOSED_WITH_ERROR = "what could be committed is, and there is an error"
    ABORT = "somebody gave the run up"


_I, _S, _R, _W = State.INITIALIZING, State.SCHEDULING, State.RUNNING, State.RESTARTING
_C, _D, _Z = State.RESCHEDULING, State.SHUTTING_DOWN, State.RESIZING

TRANSITIONS: Final[Mapping[tuple[State, Input], Edge[State]]] = {
    (_I, Input.OPENED): Edge(_S, "the run's folder is open; the workers are created"),
    (_I, Input.OVER): Edge(_D, "the run's folder cannot be used"),
    (_S, Input.STARTED): Edge(_R, "all workers are up"),
    (_S, Input.WARM_RESTART): Edge(_W, "a worker failed before all ran the training function"),
    (_S, Input.COLD_RESTART): Edge(_C, "a worker failed before all ran the training function"),
    (_S, Input.OVER): Edge(_D, "the workers cannot be started"),
    (_R, Input.WARM_RESTART): Edge(_W, "a worker failed; the others leave the training function"),
    (_R, Input.RESIZE): Edge(_Z, "more workers are up; the others leave the training function"),
    (_R, Input.COLD_RESTART): Edge(_C, "a worker failed at once after a restart; all are started anew"),
    (_R, Input.OVER): Edge(_D, "the training function has ended, or a failure is one too many"),
    (_Z, Input.STARTED): Edge(_R, "all have left, and run the training function together"),
    (_Z, Input.WARM_RESTART): Edge(_W, "a worker failed before all ran the training function"),
    (_Z, Input.COLD_RESTART): Edge(_C, "not all have left; all workers are started anew"),
    (_Z, Input.OVER): Edge(_D, "a failure is one too many"),
    (_W, Input.STARTED): Edge(_R, "the survivors have left, and those who died are replaced"),
    (_W, Input.WARM_RESTART): Edge(_W, "one more worker failed before all ran the training function"),
    (_W, Input.COLD_RESTART): Edge(_C, "the restart failed; all workers are started anew"),
    (_W, Input.OVER): Edge(_D, "a failure is one too many"),
    (_C, Input.STARTED): Edge(_R, "all new workers are up"),
    (_C, Input.WARM_RESTART): Edge(_W, "a new worker failed before all ran the training function"),
    (_C, Input.COLD_RESTART): Edge(_C, "a new worker failed before all ran the training function"),
    (_C, Input.OVER): Edge(_D, "the new workers cannot be started, or a failure is one too many"),
    (_D, Input.CLOSED): Edge(State.FINISHED, "all reports are committed"),
    (_D, Input.CLOSED_WITH_ERROR): Edge(State.ERRORED, "it ends with an error"),
    **{
        (state, Input.ABORT): Edge(State.ABORTED, "somebody gave it up")
        for state in (_I, _S, _R, _Z, _W, _C, _D)
    },
}
