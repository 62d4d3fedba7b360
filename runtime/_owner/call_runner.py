"""What the owner's side and the public API ask of a worker's executor, without importing it: drivers have none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn, Protocol

from runtime._transport.connection import Connection
from runtime._wire.messages.worker import ActorSetup

from .links import Lending


class VisibleDevices(Protocol):
    """The accelerators of a process, by the ids that it knows them by."""

    def ids(self, resource: str, numbers: Sequence[str]) -> list[str]:
        """The ids of the node's devices `numbers`."""

    def gpu_ids(self, numbers: Sequence[str]) -> list[int] | list[str]:
        """As `ids`; numbers where the process sees all GPUs."""


class CallRunner(Lending, Protocol):
    """Runs the tasks and actor calls of a worker."""

    @property
    def setup(self) -> ActorSetup | None:
        """The worker's actor, if it has one."""

    @property
    def is_async(self) -> bool:
        """Whether this is an async actor, constructed."""

    @property
    def devices(self) -> VisibleDevices:
        """The accelerators of this process."""

    def running_tasks(self) -> Iterable[tuple[bytes, bool]]:
        """The ids of what has begun here and is not over; False for a call that waits for others of its actor. Under
        the lock."""

    def connection_lost(self, connection: Connection) -> None:
        """A caller is gone. Under the lock."""

    def leave(self, reason: str, status: int = 0) -> None:
        """Starts a graceful exit: queued calls are dropped, concurrent ones finish, the calling one gets no reply."""

    def terminate(self, reason: str) -> NoReturn:
        """The same, and unwinds the calling one."""
