"""What the ingress needs of the caller's side (see `runtime.serve._caller`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from runtime.serve._wire.messages import Call, Chunk, Http, Message


class Exchange(Protocol):
    """A request that a replica has accepted."""

    @property
    def replica(self) -> str:
        """The id of the replica."""

    async def receive(self) -> Message:
        """The next message of the response."""

    def arrived(self, most_bytes: int) -> Chunk | None:
        """The next message, if it is here already and is a chunk of at most so many bytes."""

    async def send(self, chunk: bytes, more: bool) -> None:
        """Sends a part of the body; waits while the replica has enough."""

    async def send_event(self, event: dict[str, Any]) -> None:
        """Sends an event of a WebSocket."""

    def cancel(self) -> None:
        """Nobody waits for the response any more."""


class Queue(Protocol):
    """The requests of this process for one deployment."""

    async def begin(self, message: Call | Http, *, timeout_s: float | None = None) -> Exchange:
        """Waits for a slot of a replica and sends the request there."""


QueueOf: TypeAlias = Callable[[str, str], Queue]
"""(application, deployment) -> its queue."""
