"""What the parts of a pump need of it, so that none of them imports the pump."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from typing import Any, Protocol

from runtime._wire.messages.base import Message


class Timed(Protocol):
    """Something with deadlines. See `Watcher.schedule`."""

    def expire(self) -> float:
        """Runs before each wait. Returns how many seconds that may last."""


class Watcher(Protocol):
    """Polls sockets. Everything here is called under the pump's lock, or takes it."""

    timed: set[Timed]

    @property
    def stopped(self) -> bool:
        """Whether nothing is polled any more."""

    def watch(self, sock: socket.socket, on_events: Callable[[int], None]) -> None:
        """Calls `on_events` with epoll's mask whenever the socket has something to read."""

    def forget(self, fd: int) -> None:
        """Undoes `watch`."""

    def schedule(self, timed: Timed) -> None:
        """Runs `timed.expire` from the next round on. Call it again when a deadline moves forward."""


class Carrier(Watcher, Protocol):
    """Carries connections."""

    dirty: list[Any]
    """Connections that have something to send."""
    sent_much: bool
    epoll: select.epoll
    handler: Callable[[Any, Message, int], None]

    @property
    def lock(self) -> threading.RLock:
        """Guards all connections."""

    def kick(self) -> None:
        """Something is buffered: see that it leaves soon even if no thread waits."""
