"""What the executor asks of those that run an actor's calls side by side: on event loops, or in threads."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from runtime._owner.context import Execution
from runtime._transport.connection import Connection
from runtime._wire.messages.worker import Push


class ConcurrentCalls(Protocol):
    """Runs calls beside each other."""

    def submit(self, connection: Connection, push: Push, running: Execution) -> None:
        """Starts a call, or queues it. Under the lock."""

    def cancel(self, connection: Connection, task_id: bytes) -> None:
        """Interrupts a call that is marked as cancelled, if it can be. Under the lock."""

    def waiting(self) -> set[tuple[Connection, bytes]]:
        """The calls that wait for others to end, by caller and task id. Under the lock."""

    def drop_waiting(self) -> None:
        """No call begins any more. Under the lock."""

    def exit_if_idle(self) -> None:
        """Ends the process if it is to end and no call is left. From any thread."""

    def finish(self, last: Coroutine[Any, Any, Any]) -> None:
        """Runs the last coroutine of the actor to its end. On the main thread, when no call is left."""
