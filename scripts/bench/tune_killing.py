"""Kills the driver of a study in the middle, and restores the study."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import tune_trials as trials
import tune_work as work
from comparison import ANCHORS
from data_measuring import require
from figures import progress
from processes import all_pids

ENDING_S = 15.0
"""How long the processes of a killed driver have to end; then they are killed."""
_MARK = "BENCH_STUDY"
_PROGRAM = str(Path(__file__).with_name("tune_study.py"))


def killed_study(module: str, folder: Path, sizes: work.Sizes) -> tuple[float, int]:
    """Seconds from the restart until all trials have finished, and how many finished ones were run again.

    Args:
        module: that runs the study; or `ANCHORS`.
        folder: of the study; empty.
        sizes: of it.
    """
    mark = uuid.uuid4().hex
    with _program(module, folder, sizes.study, "begin", mark) as driver:
        while len(trials.finished(folder)) < sizes.killed_at:
            require(driver.poll() is None, "the study ended before its driver could be killed")
            time.sleep(0.01)
        driver.kill()
    _end(mark)
    before = trials.finished(folder)
    start = time.perf_counter()
    with _program(module, folder, sizes.study, "restore", mark) as driver:
        assert driver.stdout is not None
        require(any(line == b"done\n" for line in driver.stdout), "the restored study failed")
        seconds = time.perf_counter() - start
        driver.wait(ENDING_S)
    _end(mark)
    after = trials.finished(folder)[len(before) :]
    # Optuna draws new points: there, runs beyond the number that was wanted are repeated ones.
    beyond, repeated = len(before) + len(after) - sizes.study, len(set(before) & set(after))
    again = beyond if module == ANCHORS else repeated
    progress(f"tune: {len(before)} trials had finished, {again} were run again")
    return seconds, max(0, again - work.UNKNOWN)


@contextlib.contextmanager
def _program(
    module: str, folder: Path, trials: int, what: str, mark: str
) -> Iterator[subprocess.Popen[bytes]]:
    driver = subprocess.Popen(
        [sys.executable, _PROGRAM, module, str(folder), str(trials), what],
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, _MARK: mark},
    )
    try:
        yield driver
    finally:
        driver.kill()
        driver.wait()


def _end(mark: str) -> None:
    """Waits for the processes that carry a mark to end, and ends those that do not."""
    deadline = time.monotonic() + ENDING_S
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    text, found = f"{_MARK}={mark}".encode(), []
    for pid in all_pids():
        try:
            if text in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
        except OSError:
            continue  # it has ended, or is another user's
    return found
