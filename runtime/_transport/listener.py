"""A listening socket of a pump. It stops accepting for a while when the process has no room for another connection."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from typing import Protocol

from .failures import report
from .pumping import Watcher


class Limit(Protocol):
    """Limits the connections that have proved nothing yet."""

    @property
    def is_full(self) -> bool:
        """Whether as many are under way as may be."""

    def hold(self, listener: Listener) -> None:
        """Resumes the listener as soon as there is room."""


PAUSE_S = 0.1
"""How long to accept nobody after `accept` has failed, usually because the process has no descriptor left."""


class Listener:
    """Accepts every waiting caller each time the socket is readable. Everything here runs under the pump's lock.

    Callers that are not accepted stay in the kernel's backlog. A paused socket is not polled: it stays readable, and
    the pump would spin.

    Args:
        pump: watches the socket.
        accept: takes each accepted socket.
        greeter: limits the connections that have proved nothing; None: no limit.
    """

    def __init__(
        self,
        pump: Watcher,
        sock: socket.socket,
        accept: Callable[[socket.socket], None],
        greeter: Limit | None = None,
    ) -> None:
        self._pump = pump
        self._sock = sock
        self._accept = accept
        self._greeter = greeter
        self._retry_s = 0.0
        self.resume()

    def resume(self) -> None:
        """Accepts callers, those in the backlog first."""
        if not self._pump.stopped:
            self._pump.watch(self._sock, self._on_events)

    def expire(self) -> float:
        """Resumes `PAUSE_S` after a failed `accept`. See `Pump.schedule`."""
        left = self._retry_s - time.monotonic()
        if left > 0:
            return left
        self._pump.timed.discard(self)
        self.resume()
        return math.inf

    def _on_events(self, _events: int) -> None:
        greeter = self._greeter
        if greeter is not None and greeter.is_full:  # and a caller waits: the socket is readable
            self._pause()
            greeter.hold(self)
            return
        while greeter is None or not greeter.is_full:
            try:
                peer, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                report("accepting a connection (if too many files are open, raise the limit: ulimit -n)")
                self._pause()
                self._retry_s = time.monotonic() + PAUSE_S
                self._pump.schedule(self)
                return
            self._accept(peer)

    def _pause(self) -> None:
        self._pump.forget(self._sock.fileno())
