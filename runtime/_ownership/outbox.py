"""What the ownership core wants of the outside. The shell carries it out; tests record it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from runtime._wire.messages.base import Message, WorkerAddress
from runtime._wire.messages.worker import Value

from .records import Entry


class Link(Protocol):
    """A connection to another process: buffers what is sent. Messages arrive in order."""

    peer: Any
    """The address of the process (`WorkerAddress`)."""

    def send(self, message: Message) -> None:
        """Sends one message, unless the link is closed."""

    def call(self, request: Any, callback: Callable[[Any], None]) -> None:
        """Sends a request; `callback` gets the reply, or an `ErrorReply` when the link closes."""

    def reply(self, message: Message, correlation: int) -> None:
        """Answers a request."""


class Outbox(Protocol):
    """The effects of ownership. No method calls back into the core before the core's own method has returned, but for
    `Link.call` on a link that is closed."""

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

    def unhandled(self, value: Value) -> None:
        """An error was never read, and nobody can read it any more."""

    def callback_failed(self, what: str) -> None:
        """A callback raised; called in the `except` block. `what` names the kind of callback."""
