"""Back-pressure: generators pause while what they yielded is not consumed, each by itself and per actor."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.polling import eventually
from tests.under_test import NAME, OWN, exceptions, ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0)
class Reporter:
    """Counts what generators are about to yield."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def report(self, tag: str) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def count(self, tag: str) -> int:
        return self.counts.get(tag, 0)


@ray.remote(_generator_backpressure_num_objects=2)
def limited(reporter: Any, n: int, size_bytes: int = 0) -> Any:
    for i in range(n):
        ray.get(reporter.report.remote("a"))
        yield bytes([i]) * size_bytes if size_bytes else i


class Producer:
    @ray.method(_generator_backpressure_num_objects=2)
    def limited(self, reporter: Any, tag: str, n: int) -> Any:
        for i in range(n):
            ray.get(reporter.report.remote(tag))
            yield i

    def free(self, reporter: Any, tag: str, n: int) -> Any:
        for i in range(n):
            ray.get(reporter.report.remote(tag))
            yield i

    @ray.method(_num_objects_per_yield=2)
    def pairs(self, reporter: Any, tag: str, n: int) -> Any:
        for i in range(n):
            ray.get(reporter.report.remote(tag))
            yield i, i

    def ping(self) -> str:
        return "pong"


@ray.remote
class AsyncProducer:
    async def free(self, reporter: Any, tag: str, n: int) -> Any:
        for i in range(n):
            await reporter.report.remote(tag)
            yield i

    async def ping(self) -> str:
        return "pong"


def stays_at(reporter: Any, tag: str, count: int) -> bool:
    """Whether so many were reported, and no more come soon."""
    if not eventually(lambda: ray.get(reporter.count.remote(tag)) >= count):
        return False
    time.sleep(0.05)
    return int(ray.get(reporter.count.remote(tag))) == count


def values(gen: Any) -> list[Any]:
    return [ray.get(ref) for ref in gen]


@pytest.mark.parametrize("size_bytes", [0, 300_000])
def test_a_task_pauses(size_bytes: int) -> None:
    reporter = Reporter.remote()
    gen = limited.remote(reporter, 6, size_bytes)
    assert stays_at(reporter, "a", 2)
    assert ray.wait([gen], timeout=30) == ([gen], [])  # looking is not taking
    assert stays_at(reporter, "a", 2)
    next(gen)
    assert stays_at(reporter, "a", 3)
    next(gen)
    next(gen)
    assert stays_at(reporter, "a", 5)
    assert len(values(gen)) == 3
    assert ray.get(reporter.count.remote("a")) == 6


def test_dropping_the_generator_lets_it_go_on() -> None:
    reporter = Reporter.remote()
    gen = limited.remote(reporter, 8)
    assert stays_at(reporter, "a", 2)
    del gen
    assert eventually(lambda: ray.get(reporter.count.remote("a")) == 8)


@pytest.mark.parametrize("max_concurrency", [1, 4])
def test_a_method_pauses(max_concurrency: int) -> None:
    reporter = Reporter.remote()
    actor = ray.remote(Producer).options(max_concurrency=max_concurrency).remote()
    gen = actor.limited.remote(reporter, "a", 5)
    assert stays_at(reporter, "a", 2)
    if max_concurrency > 1:
        assert ray.get(actor.ping.remote(), timeout=30) == "pong"
    assert values(gen) == list(range(5))


def test_an_async_method_pauses_and_others_go_on() -> None:
    reporter, actor = Reporter.remote(), AsyncProducer.remote()
    gen = actor.free.options(_generator_backpressure_num_objects=1).remote(reporter, "a", 4)
    assert stays_at(reporter, "a", 1)
    assert ray.get(actor.ping.remote(), timeout=30) == "pong"

    async def read() -> list[int]:
        return [await ref async for ref in gen]

    assert asyncio.run(read()) == [0, 1, 2, 3]


def test_an_option_of_the_call_and_its_absence() -> None:
    reporter = Reporter.remote()
    actor = ray.remote(Producer).remote()
    gen = actor.limited.options(_generator_backpressure_num_objects=-1).remote(reporter, "a", 5)
    assert eventually(lambda: ray.get(reporter.count.remote("a")) == 5)
    assert values(gen) == list(range(5))
    gen = actor.free.options(_generator_backpressure_num_objects=3).remote(reporter, "b", 5)
    assert stays_at(reporter, "b", 3)
    assert values(gen) == list(range(5))


def test_a_paused_task_can_be_cancelled() -> None:
    reporter = Reporter.remote()
    gen = limited.remote(reporter, 10)
    assert stays_at(reporter, "a", 2)
    ray.cancel(gen)
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(gen.completed())
    assert ray.get(reporter.count.remote("a")) == 2


def test_a_retry_goes_on_where_the_consumer_is(tmp_path: Any) -> None:
    @ray.remote(max_retries=1, _generator_backpressure_num_objects=1)
    def crash_once(path: str) -> Any:
        first = not os.path.exists(path)
        open(path, "w").close()
        for i in range(6):
            if first and i == 4:
                os._exit(1)
            yield i

    assert values(crash_once.remote(str(tmp_path / "began"))) == list(range(6))


def test_a_pipeline_does_not_run_ahead() -> None:
    reporter = Reporter.remote()

    @ray.remote(_generator_backpressure_num_objects=1, num_cpus=0)
    def double(reporter: Any) -> Any:
        for ref in limited.options(_generator_backpressure_num_objects=1).remote(reporter, 10):
            yield 2 * ray.get(ref)

    gen = double.remote(reporter)
    assert ray.get(next(gen)) == 0
    assert eventually(lambda: ray.get(reporter.count.remote("a")) >= 3)
    assert stays_at(reporter, "a", 3)
    assert values(gen) == [2 * i for i in range(1, 10)]


def test_many_at_once() -> None:
    actor = ray.remote(Producer).options(max_concurrency=10).remote()
    reporter = Reporter.remote()

    async def read(tag: str) -> list[int]:
        gen = actor.free.options(_generator_backpressure_num_objects=1).remote(reporter, tag, 10)
        return [await ref async for ref in gen]

    async def main() -> list[list[int]]:
        return await asyncio.gather(*(read(str(i)) for i in range(10)))

    assert asyncio.run(main()) == [list(range(10))] * 10


# ---------------------------------------------------------------- one limit for an actor


def capped(limit: int, **options: Any) -> Any:
    return ray.remote(_actor_generator_backpressure_num_objects=limit, **options)(Producer).remote()


def test_one_stream_of_an_actor_with_a_limit() -> None:
    reporter, actor = Reporter.remote(), capped(3)
    gen = actor.free.remote(reporter, "a", 5)
    assert stays_at(reporter, "a", 3)
    assert ray.get(next(gen)) == 0
    assert stays_at(reporter, "a", 4)
    assert values(gen) == [1, 2, 3, 4]
    again = actor.free.remote(reporter, "b", 5)
    assert stays_at(reporter, "b", 3)
    assert values(again) == list(range(5))


def test_streams_share_the_limit() -> None:
    reporter, actor = Reporter.remote(), capped(6, max_concurrency=2)
    first, second = (actor.free.remote(reporter, "a", 5) for _ in range(2))
    assert stays_at(reporter, "a", 6)
    ray.get(next(first))
    assert stays_at(reporter, "a", 7)
    assert values(first) == [1, 2, 3, 4]
    assert values(second) == list(range(5))


def test_the_limit_of_the_method_counts_as_well() -> None:
    reporter, actor = Reporter.remote(), capped(50, max_concurrency=2)
    gens = [actor.limited.remote(reporter, tag, 5) for tag in "ab"]
    assert stays_at(reporter, "a", 2)
    assert stays_at(reporter, "b", 2)
    assert [values(gen) for gen in gens] == [list(range(5))] * 2


def test_objects_are_counted_and_not_yields() -> None:
    reporter, actor = Reporter.remote(), capped(4)
    gen = actor.pairs.remote(reporter, "a", 5)
    assert stays_at(reporter, "a", 2)
    ray.get(next(gen))
    assert stays_at(reporter, "a", 3)
    assert values(gen) == [0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_what_is_left_of_a_finished_stream_counts() -> None:
    reporter, actor = Reporter.remote(), capped(4)
    first = actor.free.remote(reporter, "a", 2)
    assert ray.get(actor.ping.remote(), timeout=30) == "pong"
    second = actor.free.remote(reporter, "b", 2)
    assert stays_at(reporter, "b", 2)
    third = actor.free.remote(reporter, "c", 2)
    assert stays_at(reporter, "c", 0)
    assert ray.get(next(first)) == 0
    assert stays_at(reporter, "c", 1)
    del first, second
    assert values(third) == [0, 1]


@pytest.mark.skipif(not OWN, reason="the other engine does not always give it back")
@pytest.mark.parametrize("how", ["cancel", "drop", "die"])
def test_room_comes_back(how: str) -> None:
    reporter, actor = Reporter.remote(), capped(4, max_concurrency=3)

    @ray.remote(max_retries=0)
    def caller(actor: Any, reporter: Any) -> None:
        gen = actor.free.remote(reporter, "a", 10)
        stays_at(reporter, "a", 4)
        del gen
        os._exit(1)

    if how == "die":
        with pytest.raises(exceptions.WorkerCrashedError):
            ray.get(caller.remote(actor, reporter))
    else:
        gen = actor.free.remote(reporter, "a", 10)
        assert stays_at(reporter, "a", 4)
        if how == "cancel":
            ray.cancel(gen)
            with pytest.raises(exceptions.TaskCancelledError):
                values(gen)
        del gen
    assert values(actor.free.remote(reporter, "b", 8)) == list(range(8))


def test_an_async_actor_with_a_limit() -> None:
    reporter = Reporter.remote()
    actor = AsyncProducer.options(_actor_generator_backpressure_num_objects=3).remote()
    gens = [actor.free.remote(reporter, "a", 4) for _ in range(2)]
    assert stays_at(reporter, "a", 3)
    threads = [threading.Thread(target=values, args=(gen,)) for gen in gens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert ray.get(reporter.count.remote("a")) == 8


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("_generator_backpressure_num_objects", 0, "num_objects=0 is not allowed"),
        ("_num_objects_per_yield", 0, "_num_objects_per_yield"),
        ("_num_objects_per_yield", -1, "_num_objects_per_yield"),
        ("_actor_generator_backpressure_num_objects", 0, "_num_objects must be > 0"),
    ],
)
def test_limits_that_make_no_sense(option: str, value: int, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        ray.remote(**{option: value})(Producer if "actor" in option else lambda: None)
    with pytest.raises(TypeError):
        ray.remote(**{option: "many"})(Producer if "actor" in option else lambda: None)


@pytest.mark.skipif(not OWN, reason="loses a value by hand")
def test_an_item_that_is_lost_before_it_is_taken_comes_again() -> None:
    @ray.remote
    def large() -> Any:
        for i in range(4):
            yield np.full(40_000, i)

    core = importlib.import_module(f"{NAME}._process.core_worker").current()
    items = large.options(_generator_backpressure_num_objects=2).remote()
    ready, _ = ray.wait([items], timeout=30)
    assert ready
    entry = items._stream.peek()._entry
    with core.lock:
        core.lineage.rebuild(entry)
    ready, _ = ray.wait([items], timeout=30)
    assert ready
    assert [int(ray.get(ref, timeout=30)[0]) for ref in items] == [0, 1, 2, 3]
