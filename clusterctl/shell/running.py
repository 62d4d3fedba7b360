"""A script that runs on a machine, in a session of an SSH connection: read there by a shell. That reads a group of
commands to its end before it runs any, but may read ahead as much as there is. So what is sent once a script runs is
all its own, and nothing is sent before.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable

from autoscaler.provider import ShellError, ShellTimedOut

from .channel import Broken, Channel
from .piping import Between

_BLOCK = 65536
_SHELL = "exec /bin/sh"
"""Command, which log-in shells of all kinds read alike: a shell that reads its input."""


def not_begun(machine: str, within_s: float) -> ShellTimedOut:
    """The error that says that a command did not begin in time."""
    return ShellTimedOut(
        f"{machine} did not begin to run a command within {within_s:g} s: its sshd does not answer, or the user's "
        "log-in scripts do not end"
    )


class Running(io.RawIOBase):
    """A script on a machine. Reading it gives what the script writes, between the two marks of the start and the end;
    what is written to it is the script's input.

    Args:
        late: is raised at the deadline, or when it is silent for too long.
        deadline: on the monotonic clock.
        stall_s: without a deadline: it may be silent for so long.
    """

    def __init__(
        self,
        channel: Channel,
        script: str,
        late: ShellTimedOut,
        deadline: float | None,
        stall_s: float | None = None,
    ) -> None:
        self.channel = channel
        self._between = Between()
        mark = self._between.mark
        # `exit`: what it has left of its input is no script
        self._script = (
            f"{{\nprintf '\\n%s%s\\n' '{mark}' $$\n{script}printf '%s%s\\n' '{mark}' $?\nexit\n}}\n"
        )
        self._late = late
        self._deadline = deadline
        self._stall_s = stall_s
        self._buffer = b""
        self._status: int | None = None

    @property
    def group(self) -> int:
        """Its process group there; 0 before it has begun."""
        return int(self._between.first or 0)

    def begin(self, within_s: float) -> None:
        """Sends the script and waits until it runs. What log-in scripts print before is dropped.

        Raises:
            ShellTimedOut: it does not within this time.
        """
        own = self._deadline, self._late
        begin_by = time.monotonic() + within_s
        if self._deadline is None or begin_by < self._deadline:
            self._deadline = begin_by
            self._late = not_begun(self.channel.machine, within_s)
        try:
            self.channel.execute(_SHELL, self._deadline)
        except TimeoutError:
            raise self._late from None
        with contextlib.suppress(Broken):  # reading says why
            self.write(os.fsencode(self._script))
        heard = b""
        while self._between.first is None:
            data = self._receive()
            if not data:
                raise self._ended_early(heard)
            heard = (heard + data)[-_BLOCK:]
            self._buffer = self._between.take(data)
        self._deadline, self._late = own

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        data = self._next()
        taken, self._buffer = data[: len(into)], data[len(into) :]
        into[: len(taken)] = taken
        return len(taken)

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Sends all of it. Raises `Broken` when the script reads no more."""
        try:
            self.channel.sendall(data, self._left_s())
        except TimeoutError:
            raise self._late from None
        return len(data)

    def finish(self, take: Callable[[bytes], None]) -> int:
        """Passes on all that comes until the script ends; returns its exit status.

        It does not wait for the end of the stream: a daemon that the script left behind may hold that open for ever.
        """
        while data := self._next():
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

    def _next(self) -> bytes:
        """What comes before the closing mark; b"" from there on."""
        data, self._buffer = self._buffer, b""
        while not data and self._status is None:
            if self._between.last is not None:
                self._status = int(self._between.last)
            elif received := self._receive():
                data = self._between.take(received)
            else:
                data = self._between.rest()
                if not data:
                    self._status = self._unmarked_status()
        return data

    def _unmarked_status(self) -> int:
        """The stream has ended: the script was killed, or the connection lost."""
        if not self.channel.has_ended:
            raise self.channel.lost()
        try:
            status = self.channel.exit_status(self._deadline)
        except TimeoutError:
            raise self._late from None
        return status if status >= 0 else 137  # the signal is SIGKILL as a rule

    def _ended_early(self, heard: bytes) -> ShellError:
        if not self.channel.has_ended:
            return self.channel.lost()
        words = self.channel.words() or heard.decode(errors="replace").strip()
        return ShellError(f"{self.channel.machine} runs no command: {words[-1000:]}")

    def _receive(self) -> bytes:
        try:
            return self.channel.recv(_BLOCK, self._left_s())
        except TimeoutError:
            raise self._late from None

    def _left_s(self) -> float | None:
        if self._deadline is None:
            return self._stall_s  # None: whoever sets no limit waits for as long as the command takes
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._late
        return left
