"""Generators: values come as references while the task runs."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import Any

import pytest

from tests.runtime.api.streams import AsyncStreams, Gate, Streams, count, drain, kinds, start
from tests.under_test import exceptions, ray

pytestmark = pytest.mark.usefixtures("session")


@kinds()
def test_values_come_in_order(kind: str) -> None:
    gen = start(kind, 5)
    assert isinstance(gen, ray.ObjectRefGenerator)
    assert [ray.get(ref) for ref in gen] == [0, 1, 2, 3, 4]
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(gen)


@kinds()
def test_nothing_is_yielded(kind: str) -> None:
    assert list(start(kind, 0)) == []


@kinds()
@pytest.mark.parametrize("fail_at", [0, 2])
def test_an_error_is_the_last_item(kind: str, fail_at: int) -> None:
    gen = start(kind, 5, fail_at)
    for i in range(fail_at):
        assert ray.get(next(gen)) == i
    with pytest.raises(exceptions.RayTaskError, match="boom") as caught:
        ray.get(next(gen))
    assert isinstance(caught.value, ValueError)
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(gen)
    assert gen.is_finished()
    assert ray.get(gen.completed()) is None


@kinds()
def test_async_iteration(kind: str) -> None:
    async def read(gen: Any) -> list[Any]:
        return [await ref async for ref in gen]

    assert asyncio.run(read(start(kind, 5))) == [0, 1, 2, 3, 4]


def test_anext() -> None:
    async def main() -> None:
        gen = count.remote(2)
        assert await (await gen.__anext__()) == 0
        assert await (await gen.__anext__()) == 1
        for _ in range(2):
            with pytest.raises(StopAsyncIteration):
                await gen.__anext__()

    asyncio.run(main())


def test_waiting_for_the_next_item_can_be_cancelled() -> None:
    gate = Gate.remote()

    async def main() -> list[Any]:
        gen = AsyncStreams.remote().after.remote(gate)
        assert await (await gen.__anext__()) == "first"
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(gen.__anext__(), 0.05)
        await gate.open.remote()
        return [await ref async for ref in gen]

    assert asyncio.run(main()) == ["second"]


def test_many_streams_at_once_in_one_actor() -> None:
    actor = AsyncStreams.remote()

    async def read() -> list[Any]:
        return [await ref async for ref in actor.plain.remote(20)]

    async def main() -> list[list[Any]]:
        return await asyncio.gather(*(read() for _ in range(10)))

    assert asyncio.run(main()) == [list(range(20))] * 10


def test_items_come_while_the_task_runs() -> None:
    gate = Gate.remote()

    @ray.remote
    def waits(gate: Any) -> Any:
        yield "first"
        ray.get(gate.wait.remote())
        yield "second"

    gen = waits.remote(gate)
    assert ray.get(next(gen)) == "first"
    assert not gen.next_ready()
    assert not gen.is_finished()
    assert ray.wait([gen.completed()], timeout=0)[0] == []
    gate.open.remote()
    assert ray.get(next(gen)) == "second"
    with pytest.raises(StopIteration):
        next(gen)
    assert not gen.next_ready()
    assert gen.is_finished()
    assert ray.get(gen.completed()) is None


def test_a_finished_stream_with_items_left() -> None:
    gen = count.remote(2)
    assert ray.get(gen.completed()) is None
    assert gen.next_ready()
    assert not gen.is_finished()
    assert ray.get(list(gen)) == [0, 1]


def test_ids() -> None:
    gen = count.remote(2)
    first = next(gen)
    assert first.task_id() == gen.completed().task_id()
    assert first != gen.completed() == gen._generator_ref


@pytest.mark.parametrize("method", ["send", "throw", "close"])
def test_what_python_generators_can_and_these_cannot(method: str) -> None:
    gen = count.remote(0)
    args = [] if method == "close" else [1]
    with pytest.raises(NotImplementedError, match=f"`gen.{method}` is not supported"):
        getattr(gen, method)(*args)
    with pytest.raises(NotImplementedError, match=f"`gen.a{method}` is not supported"):
        asyncio.run(getattr(gen, f"a{method}")(*args))


def test_a_generator_cannot_be_pickled() -> None:
    gen = count.remote(1)

    @ray.remote
    def take(value: Any) -> Any:
        return value

    @ray.remote
    def give() -> Any:
        return count.remote(1)

    for attempt in (
        lambda: pickle.dumps(gen),
        lambda: take.remote(gen),
        lambda: take.remote([gen]),
        lambda: ray.put(gen),
        lambda: ray.get(give.remote()),
    ):
        with pytest.raises(TypeError, match=r"cannot return or pass a generator|[Ss]erializ"):
            attempt()


def test_get_and_wait_take_what_they_can() -> None:
    gen = count.remote(1)
    assert ray.get(gen) is gen
    with pytest.raises(TypeError):
        ray.get([gen])
    with pytest.raises(TypeError, match="list"):
        ray.wait(gen)
    with pytest.raises(ValueError, match="unique"):
        ray.wait([gen, gen])


def test_next_sync_times_out_with_the_nil_reference() -> None:
    gate = Gate.remote()
    gen = AsyncStreams.remote().after.remote(gate)
    assert ray.get(gen._next_sync(30)) == "first"
    assert gen._next_sync(timeout_s=0.01).is_nil()
    assert asyncio.run(gen._next_async(timeout_s=0.01)).is_nil()
    gate.open.remote()
    assert ray.get(gen._next_sync(30)) == "second"


def test_several_threads_share_a_generator() -> None:
    gen, seen = count.remote(100), []

    def read() -> None:
        while True:
            try:
                ref = next(gen)
            except (StopIteration, AssertionError):  # the other engine gives the latter: "not thread-safe"
                return
            seen.append(ray.get(ref))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(seen) == list(range(100))


def test_values_may_be_large_and_hold_references() -> None:
    @ray.remote
    def make() -> Any:
        for i in range(3):
            yield [ray.put(i), bytes([i]) * 300_000]

    values = [ray.get(ref) for ref in make.remote()]
    assert [(ray.get(inner), len(large), large[0]) for inner, large in values] == [
        (i, 300_000, i) for i in range(3)
    ]


def test_a_value_that_cannot_be_pickled_is_an_error_at_its_place() -> None:
    @ray.remote
    def make() -> Any:
        yield 1
        yield threading.Lock()
        yield 2

    first, *rest = drain(make.remote())
    assert first == 1
    assert len(rest) == 1
    assert TypeError in rest[0]


def test_items_are_arguments_of_other_tasks() -> None:
    @ray.remote
    def double(x: int) -> int:
        return 2 * x

    assert ray.get([double.remote(ref) for ref in count.remote(4)]) == [0, 2, 4, 6]


def test_a_pipeline_of_generators() -> None:
    @ray.remote
    def add_one(source: Any) -> Any:
        for ref in source:
            yield ray.get(ref) + 1

    @ray.remote
    class Stage:
        def __init__(self, source: Any) -> None:
            self.source = source

        def run(self, n: int) -> Any:
            for ref in self.source.plain.remote(n) if n else ():
                yield ray.get(ref) + 1

    assert [ray.get(ref) for ref in Stage.remote(Streams.remote()).run.remote(4)] == [1, 2, 3, 4]
    assert [ray.get(ref) for ref in add_one.remote([ray.put(0), ray.put(5)])] == [1, 6]


# ---------------------------------------------------------------- in wait


def test_wait_for_a_generator_and_references() -> None:
    gate = Gate.remote()
    gen, ref = AsyncStreams.remote().after.remote(gate), ray.put("value")
    assert ray.get(next(gen)) == "first"
    ready, rest = ray.wait([gen, ref], num_returns=2, timeout=0.05)
    assert ready == [ref]
    assert rest == [gen]
    gate.open.remote()
    for _ in range(2):
        assert ray.wait([gen], timeout=30) == ([gen], [])
    assert ray.get(next(gen)) == "second"
    for _ in range(2):
        ready, rest = ray.wait([gen], timeout=30)  # its end counts as ready
        assert (ready, rest) == ([gen], [])
        with pytest.raises(StopIteration):
            next(ready[0])


def test_wait_reads_several_streams_to_their_end() -> None:
    waiting: list[Any] = [count.remote(n) for n in (0, 1, 5)]
    values = []
    while waiting:
        ready, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0.1)
        for gen in ready:
            try:
                values.append(ray.get(next(gen)))
            except StopIteration:
                continue
            waiting.append(gen)
    assert sorted(values) == [0, 0, 1, 2, 3, 4]


def test_wait_refuses_other_things() -> None:
    with pytest.raises(TypeError, match="list containing"):
        ray.wait([count.remote(1), 1])
