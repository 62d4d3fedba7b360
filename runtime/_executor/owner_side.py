"""What the executor asks of the owner's side of its process. `_process` provides it, tests a stand-in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any, Protocol

from runtime._owner.arguments import LostArguments
from runtime._ownership.records import Entry
from runtime._transport.connection import Connection
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.worker import Push, Value
from runtime._wire.serialization import Serialized

Arguments = tuple[Sequence[Any], dict[str, Any], list[Entry]]
"""Positional and keyword arguments, and the references that were made on the way."""


class Definitions(Protocol):
    """The functions and classes that callers have sent."""

    max_calls: dict[bytes, int]
    """How often a function may run here, by key, for those with a limit."""

    def name(self, key: bytes) -> str:
        """The full name of a function or class; "" if nobody sent it."""

    def load(self, key: bytes, class_name: str = "") -> Any:
        """The function or class. Runs user code: not under the lock."""


class OwnerSide(Protocol):
    """Objects, references and tasks of this process, and the arguments of its calls."""

    @property
    def functions(self) -> Definitions:
        """The functions and classes that callers have sent."""

    @property
    def forked(self) -> bool:
        """Whether this is a child that user code forked, and not the worker itself."""

    @property
    def released(self) -> Sized:
        """The references that died and that `drain` has not handled."""

    def drain(self) -> None:
        """Handles references that died. Under the lock."""

    def unpack(self, push: Push) -> Arguments:
        """Rebuilds the arguments of an actor's call; waits for those that are lost. Runs user code."""

    def unpack_or_send_back(self, push: Push) -> Arguments:
        """The same for any call: a task or constructor does not wait for lost arguments with its resources.

        Raises:
            LostArguments: those of a task are lost: see `send_back`.
            ActorExit: those of a constructor were lost: the actor is to be placed anew.
        """

    def send_back(self, connection: Connection, push: Push, error: LostArguments) -> None:
        """Gives a task to its submitter, which hears what is lost."""

    def pack(
        self,
        object_id: bytes,
        serialized: Serialized,
        owner: WorkerAddress,
        *,
        again: bool = False,
        keeper: bytes = b"",
    ) -> Value:
        """A serialized value as it travels to its owner. See `Objects.pack`."""

    def error_value(self, error: BaseException) -> Value:
        """An error as a value."""

    def hold(self, entries: Iterable[Entry]) -> None:
        """Keeps references until `release`; their owners can be asked for them from now on. Under the lock."""

    def release(self, entry: Entry) -> None:
        """Takes one hold away. Under the lock."""

    def unregistered(self, entries: Iterable[Entry]) -> list[Entry]:
        """Those of these references that are still here, and that their owners do not know of. Under the lock."""

    def when_registered(self, entries: Iterable[Entry], callback: Callable[[], None]) -> None:
        """Calls back, under the lock, once the owners know of these references."""

    def when_all_registered(self, callback: Callable[[], None]) -> None:
        """Calls back, under the lock, once the owners know of every reference that is here. Under the lock."""

    def is_needed(self) -> bool:
        """Whether others refer to what this process owns, or tasks that it submitted are not over."""

    def report_tasks(self) -> None:
        """Tells the cluster which tasks this process has submitted, as it is about to end. Runs user code."""

    def cancel_children(self, task_id: bytes, force: bool) -> None:
        """Cancels what a cancelled task had submitted. Under the lock."""
