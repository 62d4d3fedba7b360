"""The process that a local machine consists of: the machine runs while it runs.

Started as a script with the machine's folder as only argument, in a session of its own. It adopts orphans,
and it powers the machine off when the node's daemon has ended, when nothing was started on it for a long
time, or when it is told to vanish. A worker's folder goes with it; a head's stays, for its logs. Imports
nothing but the standard library and one module of ours, so that a machine boots in milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clusterctl import processes
else:  # a script: the package is not on its path, and to import it would take longer than all else
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))
    import processes

    del sys.path[0]

_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.25
_UNUSED_S = 900.0


def main(folder: str) -> int:
    """Runs the machine until it is powered off."""
    with open(os.path.join(folder, "machine.json"), encoding="utf-8") as file:
        machine = json.load(file)
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    unused_until = time.time() + _UNUSED_S
    vanishes = machine["launched_s"] + machine["vanish_after_s"] if machine["vanish_after_s"] else None
    daemon: int | None = None
    while True:
        _reap()
        now = time.time()
        if not os.path.isdir(folder):
            processes.end([machine["id"]], grace_s=0.0)
            return 0
        if vanishes is not None and now >= vanishes:
            return _power_off(folder, machine, grace_s=0.0, keep=False)
        if daemon is None:
            started, daemon = _daemon(folder)
            if started and daemon is None:
                return _power_off(folder, machine, grace_s=0.5, keep=machine["is_head"])
            if not started and now > unused_until:
                return _power_off(folder, machine, grace_s=0.5, keep=False)
        watched = [woken] if daemon is None else [woken, daemon]
        wait_s = _POLL_S if daemon is None or vanishes is not None else 60.0
        ready = select.select(watched, [], [], wait_s)[0]
        if woken in ready:
            os.read(woken, 4096)
        if daemon is not None and daemon in ready:
            os.close(daemon)
            daemon = None
            unused_until = (
                time.time() + _UNUSED_S
            )  # in case the end was meant, and something else is to be started


def _daemon(folder: str) -> tuple[bool, int | None]:
    """Whether the node's daemon was started, and a descriptor that is readable when it ends (None: it
    has)."""
    try:
        with open(os.path.join(folder, "s", "daemon.json"), encoding="utf-8") as file:
            record = json.load(file)
        descriptor = os.pidfd_open(record["pid"])
    except FileNotFoundError:
        return False, None
    except ProcessLookupError:
        return True, None
    if processes.is_alive(record["pid"], record["start_ticks"]):
        return True, descriptor
    os.close(descriptor)
    return True, None


def _power_off(folder: str, machine: dict[str, Any], grace_s: float, keep: bool) -> int:
    processes.end([machine["id"]], grace_s=grace_s)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
