"""What every process of the engine on this machine is doing: Python stacks, even of one that hangs.

A process that called `register` writes the stacks of its threads when SIGUSR2 comes, without running Python code,
into a file in memory that others of the same user find by its name under /proc.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import re
import signal
import time
from collections.abc import Container, Iterator

import msgspec

SIGNAL = signal.SIGUSR2
_NAME = r"/memfd:clusterctl-stacks-(\d+)-([a-z ]+) \(deleted\)"
_ANSWER_S = 2.0
_SETTLED_S = 0.05

_file = -1
_pid = 0


class Stacks(msgspec.Struct, frozen=True):
    """What one process was doing. `text` is empty when it did not answer, as a stopped process does not."""

    pid: int
    role: str
    command: str
    text: str


def register(role: str) -> None:
    """Lets this process be asked for its stacks. Leaves SIGUSR2 alone where the program uses it itself.

    Args:
        role: what the process is, in small letters: "worker", "driver".
    """
    global _file, _pid
    inherited = _file >= 0 and _pid != os.getpid()
    if not inherited and (_file >= 0 or signal.getsignal(SIGNAL) is not signal.SIG_DFL):
        return
    if inherited:
        os.close(_file)
    _file = os.memfd_create(f"clusterctl-stacks-{os.getpid()}-{role}")
    _pid = os.getpid()
    fcntl.fcntl(_file, fcntl.F_SETFL, os.O_APPEND)  # who asks empties it first
    faulthandler.register(SIGNAL, file=_file, all_threads=True)


def unregister() -> None:
    """Takes `register` back."""
    global _file
    if _file >= 0 and _pid == os.getpid():
        faulthandler.unregister(SIGNAL)
        os.close(_file)
        _file = -1


def collect(pids: Container[int] | None = None) -> list[Stacks]:
    """The stacks of every registered process of this user on this machine, by process id.

    Args:
        pids: only of these.
    """
    asked = []
    for pid, role, path in _registered():
        if pids is None or pid in pids:
            with contextlib.suppress(OSError):  # it has ended
                os.truncate(path, 0)
                os.kill(pid, SIGNAL)
                asked.append((pid, role, path))
    deadline = time.monotonic() + _ANSWER_S
    return [Stacks(pid, role, _command(pid), _answer(path, deadline)) for pid, role, path in asked]


def _registered() -> Iterator[tuple[int, str, str]]:
    """Process id, role, and the path of the file, of each process that answers the signal."""
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        folder = f"/proc/{name}/fd"
        with contextlib.suppress(OSError):  # another user's, or it has ended
            for descriptor in os.listdir(folder):
                path = f"{folder}/{descriptor}"
                match = re.fullmatch(_NAME, os.readlink(path))
                # A fork that registered nothing has its parent's file, and would write over its parent's answer.
                if match is not None and match[1] == name and _catches(name):
                    yield int(name), match[2], path
                    break


def _catches(pid: str) -> bool:
    """Whether the signal would not end the process."""
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (SIGNAL - 1) & 1)
    return False


def _answer(path: str, deadline: float) -> str:
    """What is in the file once it has stopped growing."""
    text = ""
    while time.monotonic() < deadline:
        try:
            with open(path) as file:
                now = file.read()
        except OSError:
            return text  # it ended meanwhile
        if now and now == text:
            break
        text = now
        time.sleep(_SETTLED_S)
    return text


def _command(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""
