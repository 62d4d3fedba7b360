"""Every process of a submitted job on the head's machine, and their end.

A job's processes are the descendants of its entrypoint, the members of its process group, and whatever has its id in
the environment: a daemon that left both is still the job's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import psutil

log = logging.getLogger(__name__)

MARK = "CLUSTERCTL_SUBMISSION_ID"
"""In the environment of a job's processes: its id."""
GRACE_S = 3.0
_KILL_S = 5.0
_POLL_S = 0.05


async def end(name: str, leader: int | None, grace_s: float = GRACE_S) -> bool:
    """SIGTERM to all processes of a job, and SIGKILL to what is left after the grace; whether none is left.

    Args:
        leader: the entrypoint's process, which leads a group. None: it is not known, after a crash of the head.
    """
    members = await asyncio.to_thread(_all, name, leader)
    _each(members, psutil.Process.terminate)
    await _until_gone(members, grace_s)
    deadline = time.monotonic() + _KILL_S
    while members := await asyncio.to_thread(
        _all, name, leader
    ):  # anew: they may have started others meanwhile
        if time.monotonic() > deadline:
            log.error("job %s: processes %s do not end", name, [member.pid for member in members])
            return False
        _each(members, psutil.Process.kill)
        await _until_gone(members, 2 * _POLL_S)
    return True


def _all(name: str, leader: int | None) -> list[psutil.Process]:
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if not _runs(process):
                continue
            if process.pid == leader or _group_of(process) == leader or _is_marked(process, name):
                found[process.pid] = process
        except (psutil.Error, FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    if leader is None:
        return list(found.values())
    try:
        for child in psutil.Process(leader).children(recursive=True):
            if _runs(child):
                found[child.pid] = child
    except psutil.Error:
        pass  # it has ended
    return list(found.values())


def _group_of(process: psutil.Process) -> int:
    with open(f"/proc/{process.pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[2])


def _is_marked(process: psutil.Process, name: str) -> bool:
    try:
        return process.environ().get(MARK) == name
    except psutil.AccessDenied:
        return False  # another user's, and so never ours


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _each(members: list[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
    for member in members:
        try:
            act(member)
        except psutil.NoSuchProcess:
            continue


async def _until_gone(members: list[psutil.Process], patience_s: float) -> None:
    """Looks again and again: to wait for a child's end here would take its status from who started it."""
    for _ in range(int(patience_s / _POLL_S)):
        if not any(_runs(member) for member in members):
            return
        await asyncio.sleep(_POLL_S)
