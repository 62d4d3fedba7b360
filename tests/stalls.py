"""Stops processes of the run at random for a moment each, the driver's own too, so that races show that otherwise need
a loaded machine: `scripts/test tests/integration --stalls 7`. The number is the seed.

Only what takes a little longer then must not fail: a test that does has a race, or the product has.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import IO

from tests.leaks import tagged_processes

PAUSES_S = (0.01, 0.03, 0.06, 0.1, 0.3)
_BETWEEN_S = 0.05
_LOOK_S = 0.1


def start(run_id: str, seed: int) -> subprocess.Popen[bytes]:
    """Begins, in a process of its own that ends with this one at the latest."""
    untagged = {name: value for name, value in os.environ.items() if name != "CLUSTERCTL_TEST_RUN"}
    command = [sys.executable, "-m", "tests.stalls", str(os.getpid()), run_id, str(seed)]
    return subprocess.Popen(command, cwd=pathlib.Path(__file__).parents[1], env=untagged)


def suspend(pid: int) -> None:
    """SIGSTOP, for a test that wants a process to stand still. It is not stopped or resumed at random from then on."""
    with _suspended(os.environ["CLUSTERCTL_TEST_RUN"]) as file:
        file.write(f"{pid}\n")
        os.kill(pid, signal.SIGSTOP)


def forget(run_id: str) -> None:
    """Removes the record of what tests have suspended."""
    _record(run_id).unlink(missing_ok=True)


def _record(run_id: str) -> pathlib.Path:
    return pathlib.Path(tempfile.gettempdir(), f"cct-suspended-{run_id}")


@contextlib.contextmanager
def _suspended(run_id: str) -> Iterator[IO[str]]:
    """The processes that tests have suspended, one in each line; nobody else suspends or resumes one meanwhile."""
    with open(_record(run_id), "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        yield file


def _send(pid: int, number: int, run_id: str) -> None:
    """Sends a signal, unless a test has suspended the process."""
    if pid == os.getppid():  # the tests themselves, which may have the lock
        os.kill(pid, number)
        return
    with _suspended(run_id) as file:
        if f"{pid}\n" not in file:
            os.kill(pid, number)


def _may_be_stopped(pid: int) -> bool:
    """Whether it is there and runs: it is not stopped, by a test for instance. `nsenter` stops itself when its child is
    stopped, and nobody would let it go on."""
    state, parent = _state(pid)
    return state not in "TtZX" and not (parent and _name(parent) == "nsenter")


def _state(pid: int) -> tuple[str, int]:
    """Its state, "X" if it is gone, and its parent."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "X", 0
    state, parent = stat.rsplit(")", 1)[1].split()[:2]
    return state, int(parent)


def _name(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _stall(root: int, run_id: str, rng: random.Random) -> None:
    """Until the run ends, or SIGTERM comes: what is stopped then goes on first."""
    signals: list[int] = []  # not an exception: one that a handler raises in a finalizer is lost
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    looked = 0.0
    members: list[int] = []
    while os.getppid() == root and not signals:
        if time.monotonic() - looked > _LOOK_S:
            members = [root, *(pid for pid in tagged_processes(run_id) if pid != os.getpid())]
            looked = time.monotonic()
        victim = rng.choice(members)
        if _may_be_stopped(victim):
            with contextlib.suppress(ProcessLookupError):
                try:
                    _send(victim, signal.SIGSTOP, run_id)
                    time.sleep(rng.choice(PAUSES_S))
                finally:
                    _send(victim, signal.SIGCONT, run_id)
        time.sleep(rng.random() * _BETWEEN_S)


if __name__ == "__main__":
    _stall(int(sys.argv[1]), sys.argv[2], random.Random(int(sys.argv[3])))
