"""Which processes belong to a machine, and their end.

Everything started on a machine carries `CLUSTERCTL_MACHINE=<id>` in its environment, as does all that it
starts. A child that dropped its environment belongs to its parent's machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable

TAG = "CLUSTERCTL_MACHINE"
_PREFIX = TAG.encode() + b"="
EXEC_LOOKS = 10
EXEC_LOOK_S = 0.001


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot: with the pid it names a process for ever. None:
    gone."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def is_alive(pid: int, ticks: int) -> bool:
    """Whether this very process runs (a zombie does not)."""
    fields = _stat(pid)
    return fields is not None and fields[0] != b"Z" and int(fields[19]) == ticks


def runs(pid: int) -> bool:
    """Whether a process of this number runs (a zombie does not)."""
    fields = _stat(pid)
    return fields is not None and fields[0] != b"Z"


def of_machines(ids: Collection[str]) -> dict[str, set[int]]:
    """Live processes of each machine, the caller's own process left out."""
    tags: dict[int, str | None] = {}
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        pid = int(name)
        fields = _stat(pid)
        if fields is None or fields[0] == b"Z":
            continue
        children.setdefault(int(fields[1]), []).append(pid)
        tags[pid] = _tag(pid)
    found: dict[str, set[int]] = {machine: set() for machine in ids}
    for machine, members in found.items():
        queue = [pid for pid, tag in tags.items() if tag == machine]
        while queue:
            pid = queue.pop()
            if pid in members:
                continue
            members.add(pid)
            queue.extend(child for child in children.get(pid, ()) if tags.get(child) in (None, machine))
        members.discard(os.getpid())
    return found


def end(ids: Collection[str], grace_s: float = 0.5, deadline_s: float = 5.0) -> set[int]:
    """Ends all processes of the machines: SIGTERM, and SIGKILL for what is left after `grace_s`.

    Returns:
        What is still there `deadline_s` after the first SIGKILL (processes stuck in the kernel); normally empty.
    """
    started = time.monotonic()
    first_kill: float | None = None
    asked: set[int] = set()
    while left := set().union(*of_machines(ids).values()):
        now = time.monotonic()  # not before: a look may take long on a loaded machine
        if first_kill is not None and now - first_kill > deadline_s:
            break
        if now - started >= grace_s:
            _signal(left, signal.SIGKILL)
            first_kill = now if first_kill is None else first_kill
        else:
            _signal(left - asked, signal.SIGTERM)
        asked |= left
        time.sleep(0.02)
    return left


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/<pid>/stat after the name: state, parent, ..."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            data = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return data[data.rindex(b")") + 2 :].split() if b")" in data else None


def _tag(pid: int) -> str | None:
    for entry in _environ(pid).split(b"\0"):
        if entry.startswith(_PREFIX):
            return entry[len(_PREFIX) :].decode(errors="replace")
    return None


def _environ(pid: int) -> bytes:
    """The environment of a process; empty when it is gone or another user's, and so never ours."""
    for _ in range(EXEC_LOOKS):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                data = file.read()
            if data:
                return data
            os.readlink(f"/proc/{pid}/exe")
        except OSError:
            return b""  # gone, another user's, or a thread of the kernel
        time.sleep(EXEC_LOOK_S)  # it is just becoming another program: for a moment it has no environment
    return b""
