"""User code that does what programs do in the wild: forks, closes its output, raises the unusual."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import runtime as ray
from runtime import exceptions
from tests.integration.drivers import Driver
from tests.polling import eventually


@pytest.fixture(scope="module", autouse=True)
def session(no_leaks: None) -> Iterator[None]:
    ray.init(num_cpus=2, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.parametrize("how", ["returns", "raises", "exits"])
def test_a_forked_child_that_comes_back_does_not_answer_for_its_parent(how: str) -> None:
    @ray.remote(max_retries=0)
    def task(how: str) -> str:
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            return "parent"
        if how == "raises":
            raise ValueError(how)
        if how == "exits":
            sys.exit(3)
        return "child"

    assert ray.get([task.remote(how) for _ in range(4)], timeout=60) == ["parent"] * 4


def test_a_child_of_an_async_actor_ends() -> None:
    @ray.remote
    class Actor:
        async def fork(self) -> str:
            pid = os.fork()
            if pid:
                _, status = os.waitpid(pid, 0)  # noqa: ASYNC222 (it ends at once)
                return f"parent {os.waitstatus_to_exitcode(status)}"
            return "child"

    actor = Actor.remote()
    assert ray.get([actor.fork.remote() for _ in range(3)], timeout=60) == ["parent 0"] * 3


def test_a_pool_of_forked_processes_in_a_task() -> None:
    @ray.remote
    def task() -> list[int]:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(abs, [-1, 2, -3])

    assert ray.get(task.remote(), timeout=60) == [1, 2, 3]


def test_a_forked_child_of_the_driver_does_not_end_its_session() -> None:
    driver = Driver(
        """
        import os, sys
        import runtime as ray
        ray.init(num_cpus=1)
        f = ray.remote(lambda: 5)
        ref = ray.put(1)
        if (pid := os.fork()) == 0:
            try:
                ray.put(2)
            except ray.exceptions.RaySystemError:
                sys.exit(4)  # with everything that runs at exit
            sys.exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print("result", status, ray.get(f.remote()), ray.get(ref), flush=True)
        """
    )
    assert driver.line("result ") == "4 5 1"
    driver.close()


def test_closed_output_harms_no_later_task() -> None:
    @ray.remote
    def task(again: bool) -> int:
        print("words")
        if again:
            sys.stdout.close()
            sys.stderr.close()
        return 1

    assert ray.get([task.remote(True) for _ in range(6)], timeout=60) == [1] * 6
    assert ray.get([task.remote(False) for _ in range(6)], timeout=60) == [1] * 6


def test_the_reason_of_a_workers_death_reaches_the_caller() -> None:
    @ray.remote(max_retries=0)
    def leave() -> None:
        os._exit(3)

    with pytest.raises(exceptions.WorkerCrashedError) as caught:
        ray.get(leave.remote(), timeout=60)
    assert "3" in " ".join(caught.value.__notes__)


def test_the_first_item_of_a_stream_is_not_lost_with_its_process() -> None:
    @ray.remote(num_returns="streaming", max_retries=0)
    def items() -> Iterator[int]:
        yield 1
        os._exit(1)

    stream = items.remote()
    assert ray.get(next(stream), timeout=60) == 1
    with pytest.raises(exceptions.WorkerCrashedError):
        ray.get(next(stream), timeout=60)
    with pytest.raises(StopIteration):
        next(stream)


def test_an_event_loop_that_ends_before_its_results_come() -> None:
    @ray.remote
    class Gate:
        def __init__(self) -> None:
            self.open = asyncio.Event()

        async def wait(self) -> int:
            await self.open.wait()
            return 1

        async def release(self) -> None:
            self.open.set()

    gate = Gate.remote()
    ref = gate.wait.remote()

    async def impatient() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ref, 0.01)

    asyncio.run(impatient())
    ray.get(gate.release.remote(), timeout=60)
    assert ray.get(ref, timeout=60) == 1
    assert ref.future().result(60) == 1


def test_awaiting_a_task_that_raised_stop_iteration() -> None:
    @ray.remote
    def stop() -> None:
        raise StopIteration(3)

    async def main() -> Any:
        return await asyncio.wait_for(stop.remote(), 60)

    with pytest.raises(RuntimeError):
        asyncio.run(main())


def test_tasks_without_cpus_that_wait_for_each_other(tmp_path: pathlib.Path) -> None:
    @ray.remote(num_cpus=0)
    def meet(folder: str, number: int, count: int) -> int:
        pathlib.Path(folder, str(number)).touch()
        while len(os.listdir(folder)) < count:
            time.sleep(0.02)
        return number

    count = 12  # more than a node runs at once if it need not
    refs = [meet.remote(str(tmp_path), number, count) for number in range(count)]
    assert ray.get(refs, timeout=60) == list(range(count))


def test_nothing_of_all_this_holds_cpus() -> None:
    assert eventually(lambda: ray.available_resources().get("CPU") == 2)
