"""A script that runs on a machine, in a session of an SSH connection: read by a shell there, which may read another one
then. A shell reads a group of commands to its end before it runs any, but may read ahead as much as there is. So what
is sent once a script runs is all its own, and nothing is sent before.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import time
from collections.abc import Callable

from autoscaler.provider import ShellError

from .channel import Broken, Channel

_BLOCK = 65536
_SHELL = "exec /bin/sh"
"""Command, which log-in shells of all kinds read alike: a shell that reads its input."""


class Late(Exception):
    """The deadline has passed."""


class Running(io.RawIOBase):
    """A script on a machine. Reading it gives what the script writes, between the two marks of the start and the end.

    Args:
        deadline: on the monotonic clock.
        stall_s: without a deadline: it may be silent for so long.
        is_last: the shell that reads it ends with it.

    Attributes:
        group: its process group there; 0 before it has begun.
    """

    def __init__(
        self,
        channel: Channel,
        script: str,
        deadline: float | None,
        stall_s: float | None = None,
        *,
        is_last: bool = True,
    ) -> None:
        self.channel = channel
        self.group = 0
        self._mark = f"<{secrets.token_hex(8)}>".encode()
        mark = self._mark.decode()
        after = "exit\n" if is_last else ""  # what it has left of its input is no script
        self._script = (
            f"{{\nprintf '\\n%s%s\\n' '{mark}' $$\n{script}printf '%s%s\\n' '{mark}' $?\n{after}}}\n"
        )
        self._is_last = is_last
        self._deadline = deadline
        self._stall_s = stall_s
        self._buffer = b""
        self._status: int | None = None

    def begin(self, within_s: float) -> None:
        """Sends the script and waits until it runs. What log-in scripts print before is dropped, as is what an earlier
        script has left behind.

        Raises:
            TimeoutError: it does not within this time.
        """
        script = os.fsencode(self._script)
        own, self._deadline = self._deadline, time.monotonic() + within_s
        self._deadline = self._deadline if own is None else min(own, self._deadline)
        try:
            if not self.channel.waits:
                self.channel.execute(_SHELL, self._deadline)
            self.channel.waits = False
            with contextlib.suppress(Broken):  # reading says why
                self.channel.sendall(script, self._left_s())
            while not self._has_begun():
                data = self._receive()
                if not data:
                    raise self._ended_early()
                self._buffer += data
        except (TimeoutError, Late):
            if self._deadline == own:
                raise Late from None
            raise TimeoutError from None
        self._deadline = own

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        data = self._next(len(into))
        into[: len(data)] = data
        return len(data)

    def finish(self, take: Callable[[bytes], None]) -> int:
        """Passes on all that comes until the script ends; returns its exit status.

        It does not wait for the end of the stream: a daemon that the script left behind may hold that open for ever.
        """
        while data := self._next(_BLOCK):
            take(data)
        assert self._status is not None
        return self._status

    def expect_success(self) -> None:
        """Waits for the end.

        Raises:
            ShellError: it failed; the message has its words.
        """
        words = bytearray()
        status = self.finish(words.extend)
        if status:
            text = (words.decode(errors="replace").strip() or self.channel.words()).strip()
            raise ShellError(text[-1000:] or f"exit status {status}")

    # -- inside

    def _has_begun(self) -> bool:
        _, _, after = self._buffer.partition(b"\n" + self._mark)
        group, is_whole, rest = after.partition(b"\n")
        if is_whole:
            self.group, self._buffer = int(group), rest
        return bool(is_whole)

    def _next(self, size: int) -> bytes:
        """What comes before the closing mark; b"" from there on."""
        while self._status is None:
            at = self._buffer.find(self._mark)
            if at == 0 and b"\n" in self._buffer:
                self._status = int(self._buffer[len(self._mark) : self._buffer.index(b"\n")])
                self.channel.waits = not self._is_last
                return b""
            if end := min(size, self._safe() if at < 0 else at):
                data, self._buffer = self._buffer[:end], self._buffer[end:]
                return data
            data = self._receive()
            if not data:
                return self._ended_unmarked(size)
            self._buffer += data
        return b""

    def _safe(self) -> int:
        """How many bytes of the buffer cannot be the beginning of the mark."""
        start = self._buffer.rfind(b"<")
        return start if start >= 0 and self._mark.startswith(self._buffer[start:]) else len(self._buffer)

    def _ended_unmarked(self, size: int) -> bytes:
        """The stream has ended: the script was killed, or the connection lost."""
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        if data:
            return data
        if not self.channel.has_ended:
            raise self.channel.lost()
        try:
            status = self.channel.exit_status(self._deadline)
        except TimeoutError:
            raise Late from None
        self._status = status if status >= 0 else 137  # the signal is SIGKILL as a rule
        return b""

    def _ended_early(self) -> ShellError:
        if not self.channel.has_ended:
            return self.channel.lost()
        words = self.channel.words() or self._buffer.decode(errors="replace").strip()
        return ShellError(f"{self.channel.machine} runs no command: {words[-1000:]}")

    def _receive(self) -> bytes:
        try:
            return self.channel.recv(_BLOCK, self._left_s())
        except TimeoutError:
            raise Late from None

    def _left_s(self) -> float | None:
        if self._deadline is None:
            return self._stall_s  # None: whoever sets no limit waits for as long as the command takes
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise Late
        return left
