"""Many callers of one actor: no two calls share an id, and where they did all the same, each caller would get its own
answer and cancel its own call only.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

import runtime as ray
from runtime._core.ids import TaskIds
from runtime._process.core_worker import current

PROCESSES = 4


@pytest.fixture(scope="module", autouse=True)
def session(no_leaks: None) -> Iterator[None]:
    ray.init(num_cpus=4, log_to_driver=False)
    yield
    ray.shutdown()


@ray.remote(num_cpus=0)
class Service:
    """Answers when as many calls are inside as it was told to wait for."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.inside = 0
        self.full = asyncio.Event()
        self.entered = asyncio.Condition()

    async def echo(self, what: Any) -> Any:
        async with self.entered:
            self.inside += 1
            self.entered.notify_all()
        if self.inside >= self.expected:
            self.full.set()
        await self.full.wait()
        return what

    async def array(self, what: int) -> Any:
        return np.full(100_000, await self.echo(what))

    async def count(self, what: int) -> AsyncIterator[int]:
        for number in range(20):
            yield what + number

    async def wait_for(self, count: int) -> None:
        async with self.entered:
            await self.entered.wait_for(lambda: self.inside >= count)

    async def release(self) -> None:
        self.full.set()


@ray.remote(num_cpus=0)
class Caller:
    """A process whose calls have the ids that those of every other such process have."""

    def __init__(self, name: int) -> None:
        self.name = name

    def _begin(self) -> None:
        current().ids._numbers = itertools.count(7)

    def call(self, service: Any, method: str) -> tuple[str, int, Any]:
        self._begin()
        ref = getattr(service, method).remote(self.name)
        return ref.task_id().hex(), os.getpid(), np.max(ray.get(ref, timeout=60))

    def stream(self, service: Any) -> list[int]:
        self._begin()
        options = {"num_returns": "streaming", "_generator_backpressure_num_objects": 2}
        return [ray.get(ref, timeout=60) for ref in service.count.options(**options).remote(self.name)]

    def begin(self, service: Any) -> None:
        self._begin()
        self.ref = service.echo.remote(self.name)

    def cancel(self) -> None:
        ray.cancel(self.ref)

    def end(self) -> Any:
        try:
            return ray.get(self.ref, timeout=60)
        except ray.exceptions.TaskCancelledError:
            return "cancelled"


@pytest.mark.parametrize("method", ["echo", "array"])
def test_calls_that_share_an_id_are_answered_each_to_its_caller(method: str) -> None:
    service = Service.remote(PROCESSES)
    callers = [Caller.remote(100 * number) for number in range(PROCESSES)]
    answers = ray.get([caller.call.remote(service, method) for caller in callers], timeout=120)
    assert len({task_id for task_id, _, _ in answers}) == 1  # else this tests nothing
    assert len({pid for _, pid, _ in answers}) == PROCESSES
    assert [answer for _, _, answer in answers] == [100 * number for number in range(PROCESSES)]


def test_streams_that_share_an_id_go_on_when_their_own_callers_have_read() -> None:
    service = Service.remote(1)
    callers = [Caller.remote(100 * number) for number in range(PROCESSES)]
    answers = ray.get([caller.stream.remote(service) for caller in callers], timeout=120)
    assert answers == [list(range(100 * number, 100 * number + 20)) for number in range(PROCESSES)]


def test_a_caller_cancels_no_call_of_another() -> None:
    service = Service.remote(1000)
    callers = [Caller.remote(number) for number in range(PROCESSES)]
    ray.get([caller.begin.remote(service) for caller in callers], timeout=60)
    ray.get(service.wait_for.remote(PROCESSES), timeout=60)
    ray.get(callers[1].cancel.remote(), timeout=60)
    assert ray.get(callers[1].end.remote(), timeout=60) == "cancelled"
    ray.get(service.release.remote(), timeout=60)
    ends = ray.get([caller.end.remote() for caller in callers], timeout=60)
    assert ends == [0, "cancelled", 2, 3]


def test_a_thousand_callers_share_no_id_and_each_is_answered() -> None:
    each = 1000 // PROCESSES

    @ray.remote(num_cpus=0)
    class Callers:
        """As many callers as so many processes would be: each begins with an id source of its own."""

        def call(self, service: Any, first: int) -> list[tuple[str, int]]:
            refs = []
            for number in range(first, first + each):
                current().ids = TaskIds(current().job_id)
                refs.append(service.echo.remote(number))
            return [(ref.task_id().hex(), ray.get(ref, timeout=60)) for ref in refs]

    service = Service.options(max_concurrency=2000).remote(1000)
    processes = [Callers.remote() for _ in range(PROCESSES)]
    calls = [process.call.remote(service, each * number) for number, process in enumerate(processes)]
    answers = [answer for some in ray.get(calls, timeout=120) for answer in some]
    assert [number for _, number in answers] == list(range(1000))
    assert len({task_id for task_id, _ in answers}) == 1000


def test_forked_workers_begin_with_ids_of_their_own() -> None:
    @ray.remote(num_cpus=0)
    class Worker:
        def ids(self) -> tuple[int, list[str]]:
            made = current().ids
            return os.getpid(), [(made.task() + made.put()).hex() for _ in range(100)]

    workers = [Worker.remote() for _ in range(PROCESSES)]
    answers = ray.get([worker.ids.remote() for worker in workers], timeout=60)
    assert len({pid for pid, _ in answers}) == PROCESSES
    assert len({made for _, some in answers for made in some}) == 100 * PROCESSES


def test_a_process_goes_on_past_as_many_tasks_and_puts_as_four_bytes_can_count() -> None:
    nothing = ray.remote(num_cpus=0)(lambda: "done")
    service = Service.remote(1)
    made = current().ids
    numbers = made._numbers
    made._numbers = itertools.count(2**32 - 5)
    try:
        refs = [nothing.remote() for _ in range(10)] + [service.echo.remote("done") for _ in range(10)]
        refs += [ray.put("done") for _ in range(10)]
        assert ray.get(refs, timeout=60) == ["done"] * 30
        assert len(set(refs)) == 30
    finally:
        made._numbers = numbers
