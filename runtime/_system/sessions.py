"""Ending the processes of a session: what its leader started, and what these started, unless they made sessions of
their own."""

from __future__ import annotations

import contextlib
import os
import signal


def kill_session(session: int, spared: int = 0) -> None:
    """Kills the processes of a session, until there is none that was not sent SIGKILL.

    Args:
        session: the process id of its leader. The caller makes sure that no other process has taken that id: it is the
            leader, or the leader's parent and has not reaped it.
        spared: process id of a member that goes on.
    """
    seen = {spared}
    while found := set(_members(session)) - seen:  # a process that was sent SIGKILL forks no more
        for pid in found:
            with contextlib.suppress(
                ProcessLookupError, PermissionError
            ):  # it has ended, or changed its user
                os.kill(pid, signal.SIGKILL)
        seen |= found


def _members(session: int) -> list[int]:
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _session(pid) == session]


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return 0
