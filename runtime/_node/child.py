"""Waiting for the end of a child process, to the moment."""

from __future__ import annotations

import os
import select
import subprocess
from typing import Any


def wait_for_end(process: subprocess.Popen[Any], timeout_s: float) -> bool:
    """Whether the process ends within `timeout_s`. `Popen.wait` would look only every 50 ms, after a while."""
    if process.poll() is not None:
        return True
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # an old kernel, or no descriptor is left
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(timeout_s * 1000)
    finally:
        os.close(descriptor)
    return process.poll() is not None
