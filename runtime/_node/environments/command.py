"""Runs the programs that build environments."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
from collections.abc import Mapping, Sequence

_TAIL_LINES = 30
_USER_INFO = re.compile(r"(?<=://)[^/\s'\"]+(?=@)")
_CHANNEL_TOKEN = re.compile(r"(://\S*?/t/)[^/\s'\"]+")
_MASK = "****"


class CommandFailed(Exception):
    """A program ended badly. The message holds its command and `output`, the last lines of what it wrote. Credentials
    in URLs are masked: the message reaches logs and other people's screens."""

    def __init__(self, message: str, output: str = "") -> None:
        message, output = masked(message), masked(output)
        super().__init__(f"{message}:\n{output}" if output else message)
        self.output = output or message


def masked(text: str) -> str:
    """A text without the credentials of its URLs: users, passwords, and the tokens of conda channels (`/t/TOKEN/`)."""
    return _CHANNEL_TOKEN.sub(rf"\1{_MASK}", _USER_INFO.sub(_MASK, text))


async def run(
    command: Sequence[str], cwd: str, environment: Mapping[str, str], given: bytes | None = None
) -> str:
    """Runs a program to its end, and returns what it wrote. When this is cancelled, the program and what it started are
    killed.

    Args:
        given: what it reads from its standard input.

    Raises:
        CommandFailed: it could not be started, or its status was not 0.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandFailed(f"{shlex.join(command)} cannot be started: {error}") from error
    try:
        output, _ = await process.communicate(given)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        tail = "\n".join(output.decode(errors="replace").strip().splitlines()[-_TAIL_LINES:])
        raise CommandFailed(f"{shlex.join(command)} exited with status {process.returncode}", tail)
    return output.decode(errors="replace")
