"""How a worker process ends: a state table, decisions only. `endings` carries them out.

A process that serves ends in one of four ways: nobody refers to its actor any more, or its constructor raised (it
finishes what has come); a call ended its actor (it leaves, and answers no call that has not begun); it ran a function
as often as `max_calls` allows (it retires, and exits when nobody needs what it owns); or a task called `sys.exit`.
"""

from __future__ import annotations

import enum

from runtime._core.fsm import Edge, Machine, Transitions


class Stage(enum.Enum):
    """Where in its life a worker process is."""

    SERVING = "SERVING"
    FINISHING = "FINISHING"
    LEAVING = "LEAVING"
    RETIRING = "RETIRING"
    EXITING = "EXITING"


class Event(enum.Enum):
    """What ends a worker process, or brings its end nearer."""

    UNREFERENCED = "UNREFERENCED"
    NOT_CONSTRUCTED = "NOT_CONSTRUCTED"
    LEFT = "LEFT"
    SPENT = "SPENT"
    EXIT = "EXIT"


TRANSITIONS: Transitions[Stage, Event] = {
    (Stage.SERVING, Event.UNREFERENCED): Edge(Stage.FINISHING, "no handle refers to the actor any more"),
    (Stage.SERVING, Event.NOT_CONSTRUCTED): Edge(Stage.FINISHING, "the actor's constructor raised"),
    (Stage.SERVING, Event.LEFT): Edge(Stage.LEAVING, "a call ended the actor"),
    (Stage.SERVING, Event.SPENT): Edge(Stage.RETIRING, "a function ran as often as max_calls allows"),
    (Stage.SERVING, Event.EXIT): Edge(Stage.EXITING, "a task called sys.exit"),
    (Stage.FINISHING, Event.UNREFERENCED): Edge(Stage.FINISHING, "no handle refers to the actor any more"),
    (Stage.FINISHING, Event.NOT_CONSTRUCTED): Edge(Stage.FINISHING, "the actor's constructor raised"),
    (Stage.FINISHING, Event.LEFT): Edge(Stage.LEAVING, "a call ended the actor"),
    (Stage.FINISHING, Event.EXIT): Edge(Stage.EXITING, "every call that came has run"),
    (Stage.LEAVING, Event.UNREFERENCED): Edge(Stage.LEAVING, "no handle refers to the actor any more"),
    (Stage.LEAVING, Event.NOT_CONSTRUCTED): Edge(Stage.LEAVING, "the actor's constructor raised"),
    (Stage.LEAVING, Event.LEFT): Edge(Stage.LEAVING, "another call ended the actor"),
    (Stage.LEAVING, Event.EXIT): Edge(Stage.EXITING, "the calls that had begun are over"),
    (Stage.RETIRING, Event.EXIT): Edge(Stage.EXITING, "nobody needs what the process owns"),
}
"""An exit comes when nothing runs any more, except that a task may call `sys.exit` itself."""


class Lifecycle:
    """The life of one worker process. Not thread-safe: its users hold the engine's lock.

    Attributes:
        accepts_calls: whether pushes are taken; the callers of those that are not see the process end.
        ends_when_idle: whether the process exits as soon as nothing runs, and nothing that came waits to.
        reason: why the process ends by itself, for the errors of its callers; "" for none of its own.
        status: its exit status.
    """

    __slots__ = ("_machine", "accepts_calls", "ends_when_idle", "reason", "status")

    def __init__(self) -> None:
        self._machine = Machine("the worker process", Stage.SERVING, TRANSITIONS)
        self.accepts_calls = True  # what the stage says, as plain attributes: they are read for every call
        self.ends_when_idle = False
        self.reason = ""
        self.status = 0

    @property
    def stage(self) -> Stage:
        """Where in its life the process is."""
        return self._machine.state

    @property
    def leaving(self) -> bool:
        """Whether calls that have not begun are dropped."""
        return not self.accepts_calls

    def unreferenced(self) -> None:
        """The last handle of the actor is gone."""
        self._step(Event.UNREFERENCED)

    def not_constructed(self) -> None:
        """The actor's constructor raised."""
        self._step(Event.NOT_CONSTRUCTED)

    def leave(self, reason: str, status: int = 0) -> None:
        """A call ends the actor. Of several reasons the first counts."""
        is_first = self.stage is not Stage.LEAVING
        if self._step(Event.LEFT) and is_first:
            self.reason, self.status = reason, status

    def retire(self, reason: str) -> None:
        """A function ran as often as it may."""
        if self._step(Event.SPENT):
            self.reason = reason

    def exit(self, status: int | None = None) -> None:
        """The process exits, for the reason that is known. `status`: of its own choice."""
        if self._step(Event.EXIT) and status is not None:
            self.status = status

    def _step(self, event: Event) -> bool:
        """Takes an event. Nothing changes the end of a process that exits: its last handlers of user code may try."""
        if self.stage is Stage.EXITING:
            return False
        self._machine.step(event)
        self.accepts_calls = self.stage in (Stage.SERVING, Stage.FINISHING)
        self.ends_when_idle = self.stage in (Stage.FINISHING, Stage.LEAVING)
        return True
