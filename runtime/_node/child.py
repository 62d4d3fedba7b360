"""Child processes of the node: waiting for their ends, to the moment, and ending all that they started."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from typing import Any

from runtime._system.sessions import kill_session

_LOOK_S = 0.05


def wait_for_end(process: subprocess.Popen[Any], timeout_s: float) -> bool:
    """Whether the process ends within `timeout_s`. `Popen.wait` would look only every 50 ms, after a while."""
    if not has_ended(process, timeout_s):
        return False
    process.wait()
    return True


def has_ended(process: subprocess.Popen[Any], timeout_s: float) -> bool:
    """Whether the process ends within `timeout_s`. It is not reaped: its id stays its own."""
    if process.returncode is not None:
        return True
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # an old kernel, or no descriptor is left
        deadline = time.monotonic() + timeout_s
        while not _is_zombie(process.pid):
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(descriptor)


def send_signal(process: subprocess.Popen[Any], number: signal.Signals) -> None:
    """Sends a signal unless the process was reaped. It is not reaped by this, as `Popen.send_signal` would."""
    if process.returncode is None:
        os.kill(process.pid, number)


def end_session(process: subprocess.Popen[Any]) -> int:
    """Kills a child that was started as the leader of a session, and everything in that session. Then reaps the child
    and returns its status. Until then, no other process and no other session can have its id."""
    if process.returncode is None:
        send_signal(process, signal.SIGKILL)
        kill_session(process.pid)
    return process.wait()


def _is_zombie(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
