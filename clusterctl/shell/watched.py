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
_AHEAD = 2**15
"""So much is read at once: paramiko asks for a packet in two or three pieces."""


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

    Attributes:
        is_near: the way there is short, so that little need be on it.
    """

    def __init__(
        self, stream: Stream, machine: str, over: Watched | None = None, is_near: bool = False
    ) -> None:
        self.is_near = is_near
        self._stream = stream
        self._machine = machine
        self._over = over
        self._ask: Callable[[], None] | None = None
        self._heard = 0.0
        self._asked: float | None = None
        self._stalled: float | None = None
        self._silent: Silent | None = None
        self._ahead = b""
        self._at = 0

    @property
    def silent(self) -> Silent | None:
        """Who is silent, if it ended for that."""
        return self._silent or (self._over.silent if self._over else None)

    def watch(self, ask: Callable[[], None]) -> None:
        """Begins.

        Args:
            ask: asks the other side something that it answers whatever it is. Called by the thread that reads.
        """
        self._heard = time.monotonic()
        self._ask = ask
        self._stream.settimeout(TURN_S)

    def recv(self, size: int) -> bytes:
        if self._at == len(self._ahead):
            self._ahead, self._at = self._receive(max(size, _AHEAD)), 0
        data = self._ahead[self._at : self._at + size]
        self._at += len(data)
        return data

    def _receive(self, size: int) -> bytes:
        try:
            data = self._stream.recv(size)
        except TimeoutError:
            ask = self._ask
            if ask is not None and self._is_due():
                ask()
            raise
        self._heard, self._asked, self._stalled = time.monotonic(), None, None
        return data

    def send(self, data: bytes) -> int:
        try:
            sent = self._stream.send(data)
        except TimeoutError:
            if self._ask is not None:
                self._stall()
            raise
        self._stalled = None
        return sent

    def settimeout(self, timeout: float | None) -> None:
        self._stream.settimeout(timeout)

    def close(self) -> None:
        self._closed, self._ask = True, None
        with contextlib.suppress(*channel_errors()):  # what it leads over has ended
            self._stream.shutdown(socket.SHUT_RDWR)  # wakes whoever reads or writes; the next line does not
        with contextlib.suppress(*channel_errors()):
            self._stream.close()

    _closed = False  # paramiko looks at it, as at a socket's

    def _is_due(self) -> bool:
        """Whether it is time to ask. From then on an answer is owed.

        Raises:
            Silent: it is owed for too long.
        """
        self._check()
        if self._asked is not None or self._stalled is not None or not self._is_quiet():
            return False
        self._asked = time.monotonic()
        return True

    def _stall(self) -> None:
        """It reads nothing, and says nothing. What it was sent waits for it already, so that a question would wait
        behind that, and whoever asks with it. The question comes as soon as it reads again.

        Raises:
            Silent: that has lasted too long.
        """
        self._check()
        if self._stalled is None and self._is_quiet():
            self._stalled = time.monotonic()

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._heard >= KEEPALIVE_S

    def _check(self) -> None:
        since = [at for at in (self._asked, self._stalled) if at is not None]
        if self._silent is None and since and time.monotonic() - min(since) >= SILENCE_S:
            self._silent = Silent(self._machine)
        if self._silent is not None:
            raise self._silent
