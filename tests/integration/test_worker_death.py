"""Workers that are killed in the middle of something."""

from __future__ import annotations

import os
import pathlib
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import runtime as ray
from tests.polling import eventually


@pytest.fixture(scope="module", autouse=True)
def session(no_leaks: None) -> Iterator[None]:
    ray.init(num_cpus=4)
    yield
    ray.shutdown()


@ray.remote
def note_and_wait(folder: str, release: str) -> int:
    """Leaves its pid in `folder`, then waits until `release` exists."""
    pathlib.Path(folder, str(os.getpid())).touch()
    while not os.path.exists(release):
        time.sleep(0.01)
    return os.getpid()


def pids(folder: pathlib.Path) -> set[int]:
    return {int(path.name) for path in folder.iterdir()}


def test_a_killed_task_runs_again(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "pids"
    folder.mkdir()
    ref = note_and_wait.remote(str(folder), str(tmp_path / "release"))
    assert eventually(lambda: pids(folder))
    (first,) = pids(folder)
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: len(pids(folder)) == 2)
    (tmp_path / "release").touch()
    assert ray.get(ref, timeout=60) in pids(folder) - {first}


def test_tasks_queued_behind_a_killed_one_run(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "pids"
    folder.mkdir()
    (tmp_path / "release").touch()
    first = [note_and_wait.remote(str(folder), str(tmp_path / "release")) for _ in range(100)]
    assert eventually(lambda: pids(folder))
    for pid in pids(folder):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    assert len(ray.get(first, timeout=60)) == 100


def test_results_that_a_killed_worker_left_are_still_read() -> None:
    @ray.remote(num_returns=2)
    def make() -> tuple[Any, int]:
        return np.arange(2**18), os.getpid()

    array, pid = make.remote()
    os.kill(ray.get(pid), signal.SIGKILL)
    assert ray.get(array)[-1] == 2**18 - 1


def test_a_killed_parent_runs_again_with_its_children(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "pids"
    folder.mkdir()

    @ray.remote
    def parent(release: str) -> int:
        ray.get(note_and_wait.options(num_cpus=0.1).remote(str(folder), release))
        return os.getpid()

    @ray.remote
    def tell_pid(path: str, release: str) -> int:
        pathlib.Path(path).write_text(str(os.getpid()))
        return ray.get(parent.remote(release))

    told = tmp_path / "parent"
    ref = tell_pid.remote(str(told), str(tmp_path / "release"))
    assert eventually(lambda: told.exists() and told.read_text() and pids(folder))
    os.kill(int(told.read_text()), signal.SIGKILL)
    (tmp_path / "release").touch()
    assert ray.get(ref, timeout=60) > 0


def test_the_cpus_of_killed_workers_come_back() -> None:
    @ray.remote
    def pid() -> int:
        return os.getpid()

    for _ in range(3):
        for one in set(ray.get([pid.remote() for _ in range(8)])):
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                continue
    assert eventually(lambda: ray.available_resources().get("CPU") == 4)
    assert len(ray.get([pid.remote() for _ in range(8)], timeout=60)) == 8
