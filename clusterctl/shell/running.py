"""A script that runs on a machine, in a session of an SSH connection: read there by a shell. That reads a group of
commands to its end before it runs any, but may read ahead as much as there is. So what is sent once a script runs is
all its own, and nothing is sent before.
"""

from __future__ import annotations

import contextlib
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


class Running:
    """A script on a machine. What it writes comes between two marks, those of its start and its end.

    Args:
        late: is raised at the deadline.
        deadline: on the monotonic clock; None: it may take as long as it takes.
    """

    def __init__(self, channel: Channel, script: str, late: ShellTimedOut, deadline: float | None) -> None:
        self.channel = channel
        self._between = Between()
        mark = self._between.mark
        # `exit`: what it has left of its input is no script
        self._script = (
            f"{{\nprintf '\\n%s%s\\n' '{mark}' $$\n{script}printf '%s%s\\n' '{mark}' $?\nexit\n}}\n"
        )
        self._late = late
        self._deadline = deadline
        self._first = b""

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
            with contextlib.suppress(Broken):  # reading says why
                self.channel.sendall(os.fsencode(self._script), self._left_s())
        except TimeoutError:
            raise self._late from None
        heard = b""
        while self._between.first is None:
            data = self._receive()
            if not data:
                raise self._ended_early(heard)
            heard = (heard + data)[-_BLOCK:]
            self._first = self._between.take(data)
        self._deadline, self._late = own

    def finish(self, take: Callable[[bytes], None]) -> int:
        """Passes on all that comes until the script ends; returns its exit status.

        It does not wait for the end of the stream: a daemon that the script left behind may hold that open for ever.
        """
        found = self._first
        while self._between.last is None:
            take(found)
            data = self._receive()
            if not data:
                take(self._between.rest())
                return self._unmarked_status()
            found = self._between.take(data)
        take(found)
        return int(self._between.last)

    # -- inside

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
            return None
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._late
        return left
