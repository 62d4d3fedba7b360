"""The helpers for tests of Ray programs."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator

import pytest

import runtime
from runtime import testing


@pytest.fixture(scope="module", autouse=True)
def session(no_leaks: None) -> Iterator[None]:
    runtime.init(num_cpus=2)
    yield
    runtime.shutdown()


def test_a_signal_lets_everybody_go_on() -> None:
    signal = testing.SignalActor.remote()
    waiting = [signal.wait.remote() for _ in range(3)]
    testing.wait_for_condition(lambda: runtime.get(signal.cur_num_waiters.remote()) == 3)
    assert runtime.wait(waiting, timeout=0)[0] == []
    runtime.get(signal.send.remote(clear=True))
    runtime.get(waiting)
    assert runtime.get(signal.cur_num_waiters.remote()) == 0
    assert runtime.wait([signal.wait.remote()], timeout=0.05)[0] == []
    runtime.get(signal.wait.remote(should_wait=False))


def test_a_semaphore() -> None:
    semaphore = testing.Semaphore.remote(value=1)
    runtime.get(semaphore.acquire.remote())
    assert runtime.get(semaphore.locked.remote())
    second = semaphore.acquire.remote()
    assert runtime.wait([second], timeout=0.05)[0] == []
    runtime.get(semaphore.release.remote())
    runtime.get(second)


def test_conditions() -> None:
    left = [3]

    def soon(step: int) -> bool:
        left[0] -= step
        if left[0] == 1:
            raise ValueError("not now")
        return left[0] <= 0

    testing.wait_for_condition(soon, retry_interval_ms=1, step=1)
    with pytest.raises(RuntimeError, match="condition wasn't met before the timeout expired"):
        testing.wait_for_condition(lambda: False, timeout=0.02, retry_interval_ms=5)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        testing.wait_for_condition(lambda: 1 // 0, timeout=0.02, retry_interval_ms=5)
    with pytest.raises(ZeroDivisionError):
        testing.wait_for_condition(lambda: 1 // 0, timeout=0.02, raise_exceptions=True)


def test_conditions_in_coroutines() -> None:
    async def check() -> None:
        async def true() -> bool:
            return True

        await testing.async_wait_for_condition(true)
        await testing.async_wait_for_condition(lambda: True)
        with pytest.raises(RuntimeError, match="condition wasn't met"):
            await testing.async_wait_for_condition(lambda: False, timeout=0.02, retry_interval_ms=5)

    asyncio.run(check())


def test_an_actor_is_killed_and_comes_back() -> None:
    @runtime.remote(num_cpus=0, max_restarts=1, max_task_retries=1)
    class Actor:
        def pid(self) -> int:
            return os.getpid()

    actor = Actor.remote()
    before = runtime.get(actor.pid.remote())
    assert testing.get_actor_node_id(actor) == runtime.get_runtime_context().get_node_id()
    testing.kill_actor_and_wait_for_failure(actor)
    testing.wait_for_pid_to_exit(before)
    assert runtime.get(actor.pid.remote()) != before
    testing.wait_for_num_actors(1, "ALIVE")


def test_scripts_as_drivers() -> None:
    script = "import runtime as ray; ray.init(num_cpus=1); print(ray.get(ray.put(5)))"
    assert testing.run_string_as_driver(script).splitlines()[-1] == "5"  # behind what `init` says on stderr
    out, _ = testing.run_string_as_driver_stdout_stderr("import sys; print(1); print(2, file=sys.stderr)")
    assert out == "1\n"
    with pytest.raises(subprocess.CalledProcessError):
        testing.run_string_as_driver("raise SystemExit(3)")
    with testing.run_string_as_driver_nonblocking("print(7)") as process:
        assert process.stdout is not None
        assert process.stdout.read() == b"7\n"
    testing.wait_for_pid_to_exit(process.pid)


def test_same_elements() -> None:
    assert testing.same_elements([[1], 2, 2], [2, [1], 2])
    assert not testing.same_elements([1, 1], [1, 2])
    assert not testing.same_elements([1], [1, 1])
