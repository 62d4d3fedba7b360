"""What the ownership core wants of the outside. The shell carries it out; tests record it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.worker import Value

from .records import Entry, Link, Submission


class AttemptEnded(Protocol):
    """An attempt of a task or call is over; it was in user code for so long."""

    def __call__(self, task: Submission, failed: bool, error: bytes = b"", seconds: float = 0.0) -> None: ...


class Outbox(Protocol):
    """The effects of ownership. No method calls back into the core before the core's own method has returned, but for
    `Link.call` on a link that is closed."""

    attempt_ended: AttemptEnded

    @property
    def agent(self) -> Link:
        """The link to the node agent."""

    def peer(self, address: WorkerAddress, connect: bool = True) -> Link | None:
        """The link to a process; None when it cannot be reached, or when there is none and `connect` is false."""

    def request_values(self, entries: Iterable[Entry]) -> None:
        """Asks the owners of borrowed objects for their values, unless that was done."""

    def free(self, object_ids: list[bytes], node_ids: list[bytes]) -> None:
        """Frees stored objects of ours everywhere."""

    def forget(self, object_ids: list[bytes]) -> None:
        """Nothing here refers to these borrowed objects any more."""

    def drop_copies(self, object_id: bytes, node_ids: list[bytes], outdated: bool) -> None:
        """Drops the copies of an object that was made again. `outdated`: also what this process has mapped of it."""

    def error(self, failure: Any) -> Value:
        """The value that stands for a failure (see `failures.py`)."""

    def reference(self, entry: Entry) -> Any:
        """The program's reference to an object. It takes over one hold, and gives it back when it dies."""

    def collected(self, references: Sequence[Any]) -> tuple[bytes, Sequence[Entry]]:
        """The pickled value of a task whose items are collected, and the objects that it refers to."""

    def copies_lost(self, entry: Entry, node_ids: Sequence[bytes]) -> None:
        """A worker found no copy of an argument on these nodes: has it made again if no other is known."""

    def unhandled(self, value: Value) -> None:
        """An error was never read, and nobody can read it any more."""

    def callback_failed(self, what: str) -> None:
        """A callback raised; called in the `except` block. `what` names the kind of callback."""
