"""Notices that the other side of an SSH connection is gone, frozen, or behind a link that is cut."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Callable
from typing import Protocol

KEEPALIVE_S = 15.0
"""The other side has said nothing for so long: it is asked for a sign of life."""
SILENCE_S = 30.0
"""It gave none for so long: the connection is lost."""
TURN_S = 1.0
"""So long one turn of reading or writing waits. paramiko's tenth of a second costs each idle connection a percent of a
core; it needs that only to see that the connection was closed, which wakes whoever waits here."""


def channel_errors() -> tuple[type[Exception], ...]:
    """All that paramiko's channels raise."""
    import paramiko

    return paramiko.SSHException, EOFError, OSError


class Silent(OSError):
    """The other side does not answer."""

    def __init__(self, machine: str) -> None:
        # What paramiko's thread ends with must be an error with a number, and not one that stands for "again".
        super().__init__(errno.ECONNABORTED, f"{machine} did not answer for {SILENCE_S:g} s")

    def __str__(self) -> str:
        return str(self.strerror)


class Stream(Protocol):
    """A connected socket, or a channel through another machine. `recv` and `send` raise TimeoutError."""

    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: bytes, /) -> int: ...
    def settimeout(self, timeout: float | None, /) -> None: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class Watched:
    """What SSH is spoken over, as paramiko needs it: its thread always reads, in turns.

    From `watch` on reading and writing fail when the other side is silent. So all waits of a connection end, whatever
    it leads over: the kernel knows of no peer behind a jump host or a proxy command, and acknowledges for a frozen one.

    Args:
        machine: what the other side is called.
        over: what the stream leads over, if it is a channel of another connection.
    """

    def __init__(self, stream: Stream, machine: str, over: Watched | None = None) -> None:
        self._stream = stream
        self._machine = machine
        self._over = over
        self._ask: Callable[[], None] | None = None
        self._heard = 0.0
        self._asked: float | None = None
        self._silent: Silent | None = None

    @property
    def silent(self) -> Silent | None:
        """Who is silent, if it ended for that."""
        return self._silent or (self._over.silent if self._over else None)

    def watch(self, ask: Callable[[], None]) -> None:
        """Begins.

        Args:
            ask: asks the other side something that it answers whatever it is. It must not wait.
        """
        self._heard = time.monotonic()
        self._ask = ask
        self._stream.settimeout(TURN_S)

    def recv(self, size: int) -> bytes:
        try:
            data = self._stream.recv(size)
        except TimeoutError:
            self._check()
            raise
        self._heard, self._asked = time.monotonic(), None
        return data

    def send(self, data: bytes) -> int:
        try:
            return self._stream.send(data)
        except TimeoutError:
            self._check()  # also paramiko's reading thread may be the one that cannot write
            raise

    def settimeout(self, timeout: float | None) -> None:
        self._stream.settimeout(timeout)

    def close(self) -> None:
        self._closed, self._ask = True, None
        with contextlib.suppress(*channel_errors()):  # what it leads over has ended
            self._stream.shutdown(socket.SHUT_RDWR)  # wakes whoever reads or writes; the next line does not
        with contextlib.suppress(*channel_errors()):
            self._stream.close()

    _closed = False  # paramiko looks at it, as at a socket's

    def _check(self) -> None:
        """Asks when it is time.

        Raises:
            Silent: the answer is owed for too long.
        """
        now = time.monotonic()
        if self._silent is None and self._ask is not None and now - self._heard >= KEEPALIVE_S:
            if self._asked is None:
                self._asked = now
                self._ask()
            elif now - self._asked >= SILENCE_S:
                self._silent = Silent(self._machine)
        if self._silent is not None:
            raise self._silent
