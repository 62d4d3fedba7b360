"""Signals around a command."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys
from clusterctl.commands.guard import guarded
number = int(sys.argv[1])
if sys.argv[2] == "ignored":
    signal.signal(number, signal.SIG_IGN)

def up():
    try:
        os.kill(os.getpid(), number)
    except KeyboardInterrupt:
        os.kill(os.getpid(), number)  # again, while the command cleans up
        print("cleaned up")
        raise
    print("went on")

guarded(up)()
"""


def run(number: int, how: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(int(number)), how], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_once(number: int) -> None:
    ran = run(number, "heard")
    assert ran.stdout == "cleaned up\n"
    assert "`clusterctl up` was interrupted" in ran.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_was_ignored_stays_ignored(number: int) -> None:
    ran = run(number, "ignored")
    assert (ran.returncode, ran.stdout) == (0, "went on\n")
