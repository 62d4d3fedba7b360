"""A command whose input and output lead to a machine, as ssh's ProxyCommand."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from typing import IO, Self


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running one.

    Attributes:
        stream: leads to the machine; whoever uses it closes it.
    """

    stream: socket.socket
    _process: subprocess.Popen[bytes]
    _said: IO[bytes]

    @classmethod
    def start(cls, command: str, host: str, port: int, user: str) -> Self:
        """Args:
        command: %h, %p and %r in it are host, port and user.
        """
        ours, theirs = socket.socketpair()
        said = tempfile.TemporaryFile()  # noqa: SIM115  # closed at the end
        try:
            with theirs:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", f"exec {_filled_in(command, host, port, user)}"],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=said,
                    start_new_session=True,  # Ctrl-C is ours
                )
        except BaseException:
            ours.close()
            said.close()
            raise
        return cls(ours, process, said)

    def last_words(self) -> str:
        """What it has said of itself."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace").strip()[-300:]

    def end(self) -> None:
        """Kills it, with what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._said.close()


def _filled_in(command: str, host: str, port: int, user: str) -> str:
    words = {"%%": "%", "%h": shlex.quote(host), "%p": str(port), "%r": shlex.quote(user)}
    return re.sub("%[%hpr]", lambda match: words[match.group()], command)
