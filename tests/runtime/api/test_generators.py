"""Generators: values come as references while the task runs; errors, cancellation, crashes and early ends."""

from __future__ import annotations

import asyncio
import os
import pathlib
import pickle
import threading
import time
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import OWN, exceptions, ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def count(n: int, fail_at: int = -1) -> Any:
    for i in range(n):
        if i == fail_at:
            raise ValueError("boom")
        yield i


@ray.remote
class Gate:
    """Opens once, for everybody."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def open(self) -> None:
        self.event.set()

    async def wait(self) -> None:
        await self.event.wait()


@ray.remote
class Streams:
    def plain(self, n: int, fail_at: int = -1) -> Any:
        for i in range(n):
            if i == fail_at:
                raise ValueError("boom")
            yield i

    def not_a_generator(self) -> list[int]:
        return [1, 2]

    def endless(self) -> Any:
        i = 0
        while True:
            yield i
            i += 1
            time.sleep(0.01)

    def crash(self, after: int) -> Any:
        yield from range(after)
        os._exit(1)

    def ping(self) -> str:
        return "pong"


@ray.remote
class AsyncStreams:
    async def plain(self, n: int, fail_at: int = -1) -> Any:
        for i in range(n):
            if i == fail_at:
                raise ValueError("boom")
            await asyncio.sleep(0)
            yield i

    async def endless(self) -> Any:
        i = 0
        while True:
            yield i
            i += 1
            await asyncio.sleep(0.01)

    async def after(self, gate: Any) -> Any:
        yield "first"
        await gate.wait.remote()
        yield "second"


def kinds() -> Any:
    return pytest.mark.parametrize("kind", ["task", "actor", "threaded actor", "async actor"])


def start(kind: str, *args: int) -> Any:
    if kind == "task":
        return count.remote(*args)
    options = {"max_concurrency": 4} if kind == "threaded actor" else {}
    cls = AsyncStreams if kind == "async actor" else Streams
    actor = cls.options(**options).remote()
    ray.get(actor.__ray_ready__.remote())
    gen = actor.plain.remote(*args)
    gen.keep = actor  # the actor lives as long as its handle
    return gen


def drain(gen: Any) -> list[Any]:
    """Every value; for an error, its class."""
    values: list[Any] = []
    for ref in gen:
        try:
            values.append(ray.get(ref))
        except Exception as error:
            values.append(type(error).__mro__)
    return values


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


# ---------------------------------------------------------------- numbers of returns


def test_a_fixed_number_of_returns() -> None:
    assert ray.get(count.options(num_returns=3).remote(3)) == [0, 1, 2]
    assert ray.get(count.options(num_returns=1).remote(3)) == 0
    assert ray.get(count.options(num_returns=2).remote(3)) == [0, 1]
    assert count.options(num_returns=0).remote(3) is None
    assert ray.get(Streams.remote().plain.options(num_returns=2).remote(2)) == [0, 1]


def test_too_few_returns() -> None:
    refs = count.options(num_returns=4).remote(2)
    assert ray.get(refs[:2]) == [0, 1]
    for ref in refs[2:]:
        with pytest.raises(ValueError, match="returned 2 objects, but num_returns=4"):
            ray.get(ref)


def test_an_error_among_the_returns() -> None:
    refs = count.options(num_returns=3).remote(3, 1)
    assert ray.get(refs[0]) == 0
    for ref in refs[1:]:
        with pytest.raises(ValueError, match="boom"):
            ray.get(ref)


def test_dynamic() -> None:
    ref = count.options(num_returns="dynamic").remote(3)
    assert isinstance(ref, ray.ObjectRef)
    gen = ray.get(ref)
    assert isinstance(gen, ray.DynamicObjectRefGenerator)
    assert len(gen) == 3
    assert [ray.get(one) for one in gen] == [0, 1, 2]
    assert len(gen) == 0
    assert len(ray.get(count.options(num_returns="dynamic").remote(0))) == 0


def test_dynamic_results_travel() -> None:
    @ray.remote
    def total(gen: Any) -> int:
        return sum(ray.get(list(gen)))

    ref = Streams.remote().plain.options(num_returns="dynamic").remote(4)
    assert ray.get(total.remote(ref)) == 6
    assert ray.get(total.remote(ray.get(ref))) == 6


@pytest.mark.parametrize("fail_at", [0, 1])
def test_dynamic_with_an_error(fail_at: int) -> None:
    *good, bad = ray.get(count.options(num_returns="dynamic").remote(3, fail_at))
    assert ray.get(good) == list(range(fail_at))
    with pytest.raises(ValueError, match="boom"):
        ray.get(bad)


@pytest.mark.parametrize("value", ["streaming", "dynamic"])
def test_only_generators_stream(value: str) -> None:
    def plain() -> int:
        return 1

    with pytest.raises(ValueError, match="can only be used with generator functions"):
        ray.remote(num_returns=value)(plain)
    with pytest.raises(ValueError, match="can only be used with generator functions"):
        ray.remote(plain).options(num_returns=value).remote()
    with pytest.raises(ValueError, match="can only be used with generator functions"):
        Streams.remote().not_a_generator.options(num_returns=value).remote()


def test_several_objects_per_yield() -> None:
    @ray.remote(_num_objects_per_yield=2)
    def pairs(last: Any) -> Any:
        yield 1, 2
        yield [3, 4]
        yield last

    assert drain(pairs.remote((5, 6))) == [1, 2, 3, 4, 5, 6]
    for wrong in (5, (1, 2, 3)):
        *good, error = drain(pairs.remote(wrong))
        assert good == [1, 2, 3, 4]
        assert ValueError in error
    with pytest.raises(ValueError, match="cannot be overridden"):
        pairs.options(_num_objects_per_yield=3).remote(1)
    with pytest.raises(ValueError, match="cannot be overridden"):
        Streams.remote().plain.options(_num_objects_per_yield=2)


# ---------------------------------------------------------------- failures and retries


def test_a_crash_without_retries_is_the_last_item() -> None:
    @ray.remote(max_retries=0)
    def crash() -> Any:
        yield from range(3)
        os._exit(1)

    gen = crash.remote()
    *values, error = drain(gen)
    assert values == [0, 1, 2] or not OWN  # the other engine may lose the last ones
    assert exceptions.WorkerCrashedError in error
    with pytest.raises(exceptions.WorkerCrashedError):
        ray.get(gen.completed())
    assert gen.is_finished()


@pytest.mark.parametrize("crashes", [True, False])
def test_a_retry_gives_each_item_once(tmp_path: pathlib.Path, crashes: bool) -> None:
    @ray.remote(max_retries=1, retry_exceptions=True)
    def twice(path: str) -> Any:
        first = not os.path.exists(path)
        pathlib.Path(path).touch()
        for i in range(5):
            if first and i == 3:
                if crashes:
                    os._exit(1)
                raise ValueError("once")
            yield i, first

    values = drain(twice.remote(str(tmp_path / "began")))
    assert [i for i, _ in values] == list(range(5))
    assert values[-1] == (4, False)


def test_no_retry_for_errors_unless_asked_for(tmp_path: pathlib.Path) -> None:
    *values, error = drain(count.options(max_retries=3).remote(3, 2))
    assert values == [0, 1]
    assert ValueError in error


def test_an_actor_that_dies_in_the_middle() -> None:
    actor = Streams.remote()
    *values, error = drain(actor.crash.remote(3))
    assert values == [0, 1, 2] or not OWN
    assert exceptions.ActorDiedError in error


def test_an_actor_that_is_killed_in_the_middle() -> None:
    actor = Streams.remote()
    gen = actor.endless.remote()
    assert ray.get(next(gen)) == 0
    ray.kill(actor)
    assert exceptions.RayActorError in drain(gen)[-1]


@pytest.mark.parametrize("cls", [Streams, AsyncStreams])
def test_a_cancelled_call_ends_at_a_yield(cls: Any) -> None:
    gen = cls.remote().endless.remote()
    assert ray.get(next(gen)) == 0
    ray.cancel(gen)
    assert exceptions.TaskCancelledError in drain(gen)[-1]
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(gen.completed())


@pytest.mark.parametrize("force", [False, True])
def test_a_cancelled_task(force: bool) -> None:
    @ray.remote
    def slow() -> Any:
        yield 0
        time.sleep(60)

    gen = slow.remote()
    assert ray.get(next(gen)) == 0
    ray.cancel(gen, force=force)
    assert ray.wait([gen], timeout=30) == ([gen], [])
    assert {exceptions.TaskCancelledError, exceptions.WorkerCrashedError} & set(drain(gen)[-1])
    assert gen.is_finished()


def test_an_argument_that_failed() -> None:
    @ray.remote
    def bad() -> int:
        raise KeyError("argument")

    [error] = drain(count.remote(bad.remote()))
    assert KeyError in error


# ---------------------------------------------------------------- early ends


def test_a_dropped_generator_runs_to_its_end(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "done"

    @ray.remote(_generator_backpressure_num_objects=1)
    def long(path: str) -> Any:
        for i in range(50):
            yield bytes([i]) * 200_000
        pathlib.Path(path).touch()

    gen = long.remote(str(path))
    assert ray.get(next(gen))[0] == 0
    del gen
    assert eventually(path.exists)


def test_a_caller_that_dies_does_not_stop_the_actor() -> None:
    actor = Streams.remote()

    @ray.remote(max_retries=0)
    def caller(actor: Any) -> None:
        gen = actor.plain.options(_generator_backpressure_num_objects=1).remote(10)
        ray.get(next(gen))
        os._exit(1)

    with pytest.raises(exceptions.WorkerCrashedError):
        ray.get(caller.remote(actor))
    assert ray.get(actor.ping.remote(), timeout=30) == "pong"
