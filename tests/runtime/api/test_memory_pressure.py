"""A node that runs low on memory ends workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from runtime._node.config import memory_bytes
from tests.polling import eventually
from tests.under_test import exceptions, init, ray

STEP_BYTES = 32 << 20

pytestmark = pytest.mark.usefixtures("low_memory")


@pytest.fixture
def low_memory(no_leaks: None) -> Iterator[None]:
    """A session with next to nothing as the threshold: its memory is always low."""
    init(num_cpus=2, _system_config={"memory_usage_threshold": 0.0001, "memory_monitor_refresh_ms": 100})
    yield
    ray.shutdown()


@ray.remote
def hold(started: str) -> None:
    with open(started, "a") as file:
        file.write("x")
    time.sleep(60)


@ray.remote
def until(started: str, released: str, hunger_bytes: int = 0) -> str:
    with open(started, "a") as file:
        file.write("x")
    eaten = [b"x" * STEP_BYTES for _ in range(hunger_bytes // STEP_BYTES)]
    while not Path(released).exists():
        time.sleep(0.02)
    del eaten
    return "done"


@pytest.mark.parametrize("retries", [0, 3])
def test_a_task_alone_fails_with_a_named_error(tmp_path: Path, retries: int) -> None:
    started = tmp_path / "started"
    with pytest.raises(exceptions.OutOfMemoryError, match="running low on memory"):
        ray.get(hold.options(max_retries=retries).remote(str(started)), timeout=60)
    assert not started.exists() or started.read_text() == "x"


def test_an_actor_dies_and_says_why() -> None:
    @ray.remote
    class Actor:
        def hold(self) -> None:
            time.sleep(60)

    actor = Actor.remote()
    with pytest.raises(exceptions.ActorDiedError, match="running low on memory"):
        ray.get(actor.hold.remote(), timeout=60)


def test_the_newer_of_two_is_repeated_at_no_cost_and_the_older_goes_on(tmp_path: Path) -> None:
    memory = psutil.virtual_memory()
    # What else runs on this machine may take or free so much meanwhile: other tests move gigabytes.
    spare = min(5 << 30, memory.available // 3)
    limit = (memory.total - memory.available + spare) / memory_bytes()
    ray.shutdown()
    init(num_cpus=2, _system_config={"memory_usage_threshold": limit, "memory_monitor_refresh_ms": 50})
    released, attempts = tmp_path / "released", tmp_path / "newer"
    older = until.options(max_retries=1).remote(str(tmp_path / "older"), str(released))
    assert eventually((tmp_path / "older").exists)
    newer = until.options(max_retries=1).remote(str(attempts), str(released), 2 * spare)
    assert eventually(lambda: attempts.exists() and len(attempts.read_text()) > 2)
    released.touch()
    assert ray.get(older, timeout=60) == "done"
    assert (tmp_path / "older").read_text() == "x"
    try:
        assert ray.get(newer, timeout=60) == "done"
    except exceptions.OutOfMemoryError:
        pass  # it was the last one by then
