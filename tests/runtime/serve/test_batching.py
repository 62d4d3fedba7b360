"""`@serve.batch`: sizes, waiting, concurrency, streams, errors, setters. Time is waited for only where that is the
point: all other batches are full."""

import asyncio
import gc
import pickle
import socket
import time
import weakref

import pytest

from runtime import cloudpickle
from runtime.serve import batching, context

FOREVER_S = 60.0


def run(coroutine):
    return asyncio.run(coroutine)


async def gather(function, *items):
    return await asyncio.wait_for(
        asyncio.gather(*(function(item) for item in items), return_exceptions=True), 10
    )


def test_calls_become_full_batches():
    sizes = []

    @batching.batch(max_batch_size=4, batch_wait_timeout_s=FOREVER_S)
    async def double(items):
        sizes.append(len(items))
        return [2 * item for item in items]

    async def main():
        assert await gather(double, *range(8)) == [2 * i for i in range(8)]

    run(main())
    assert sizes == [4, 4]


def test_the_first_call_waits_no_longer_than_it_must():
    @batching.batch(max_batch_size=100, batch_wait_timeout_s=0.001)
    async def count(items):
        return [len(items)] * len(items)

    async def main():
        assert await gather(count, 1, 2, 3) == [3, 3, 3]
        assert await count(1) == 1

    run(main())


def test_calls_that_came_while_a_batch_blocked_the_loop_join_the_next_one():
    sizes, later = [], []
    client, server = socket.socketpair()

    @batching.batch(max_batch_size=4, batch_wait_timeout_s=0.001)
    async def block(items):
        sizes.append(len(items))
        if len(sizes) == 1:
            client.send(b"xx")
            time.sleep(0.01)  # longer than the two calls in the queue may wait
        return items

    async def main():
        loop = asyncio.get_running_loop()
        loop.add_reader(server, lambda: later.extend(loop.create_task(block(x)) for x in server.recv(9)))
        assert await gather(block, *range(6)) == list(range(6))
        assert await asyncio.gather(*later) == [ord("x")] * 2
        loop.remove_reader(server)

    with client, server:
        run(main())
    assert sizes == [4, 4]


def test_without_parentheses():
    @batching.batch
    async def same(items):
        return items

    assert run(gather(same, 5)) == [5]


def test_methods_have_a_queue_for_each_instance_and_do_not_keep_it():
    class Model:
        def __init__(self, factor):
            self.factor = factor

        @batching.batch(max_batch_size=2, batch_wait_timeout_s=FOREVER_S)
        async def times(self, items):
            return [self.factor * item for item in items]

    async def main():
        one, two = Model(1), Model(10)
        found = await asyncio.wait_for(
            asyncio.gather(one.times(1), two.times(1), one.times(2), two.times(2)), 10
        )
        assert found == [1, 10, 2, 20]
        return weakref.ref(one)

    ref = run(main())
    gc.collect()
    assert ref() is None


def test_several_parameters_become_several_lists():
    @batching.batch(max_batch_size=2, batch_wait_timeout_s=FOREVER_S)
    async def add(xs, ys):
        return [x + y for x, y in zip(xs, ys, strict=True)]

    async def main():
        assert await asyncio.wait_for(asyncio.gather(add(1, 10), add(2, ys=20)), 10) == [11, 22]

    run(main())


def test_all_calls_of_a_batch_get_its_error_and_the_next_batch_runs():
    @batching.batch(max_batch_size=2, batch_wait_timeout_s=FOREVER_S)
    async def check(items):
        if -1 in items:
            raise ValueError("negative")
        return items

    async def main():
        found = await gather(check, 1, -1)
        assert [str(error) for error in found] == ["negative", "negative"]
        assert await gather(check, 1, 2) == [1, 2]

    run(main())


def test_batches_run_at_the_same_time_only_as_allowed():
    running = []
    most = []

    def function(concurrent):
        @batching.batch(max_batch_size=1, batch_wait_timeout_s=0, max_concurrent_batches=concurrent)
        async def work(items):
            running.append(items)
            most.append(len(running))
            await asyncio.sleep(0.001)
            running.remove(items)
            return items

        return work

    for concurrent in (1, 3):
        most.clear()
        assert run(gather(function(concurrent), *range(7))) == list(range(7))
        assert max(most) == concurrent


def test_a_cancelled_call_is_left_out():
    seen = []

    @batching.batch(max_batch_size=2, batch_wait_timeout_s=FOREVER_S)
    async def same(items):
        seen.append(list(items))
        return items

    async def main():
        one = asyncio.ensure_future(same(1))
        await asyncio.sleep(0)
        one.cancel()
        await asyncio.sleep(0)
        two, three = asyncio.ensure_future(same(2)), asyncio.ensure_future(same(3))
        done, pending = await asyncio.wait([two, three], timeout=1, return_when=asyncio.FIRST_COMPLETED)
        assert done
        for task in pending:
            task.cancel()

    run(main())
    assert all(1 not in batch for batch in seen)


def test_sizes_of_items_count():
    batches = []

    @batching.batch(max_batch_size=10, batch_wait_timeout_s=0.001, batch_size_fn=sum)
    async def work(items):
        batches.append(items)
        return items

    async def main():
        assert await gather(work, 4, 5, 6, 4) == [4, 5, 6, 4]
        (error,) = await gather(work, 11)
        assert isinstance(error, RuntimeError)
        assert "greater than max_batch_size" in str(error)

    run(main())
    assert batches == [[4, 5], [6, 4]]


def test_generators_stream_to_each_call():
    @batching.batch(max_batch_size=2, batch_wait_timeout_s=FOREVER_S)
    async def count(limits):
        for i in range(max(limits)):
            yield [i if i < limit else StopIteration for limit in limits]

    async def read(limit):
        return [item async for item in count(limit)]

    async def main():
        assert await asyncio.wait_for(asyncio.gather(read(2), read(4)), 10) == [[0, 1], [0, 1, 2, 3]]

    run(main())


def test_a_stream_ends_with_the_generators_error():
    @batching.batch(max_batch_size=1, batch_wait_timeout_s=0)
    async def fail(items):
        yield items
        raise ValueError("late")

    async def main():
        items = fail(5)
        assert await anext(items) == 5
        with pytest.raises(ValueError, match="late"):
            await anext(items)

    run(main())


def test_a_wrong_number_of_results_is_an_error():
    pytest.importorskip("runtime.serve.exceptions")

    @batching.batch(max_batch_size=1, batch_wait_timeout_s=0)
    async def none(items):
        return []

    (error,) = run(gather(none, 1))
    assert "doesn't preserve batch size" in str(error)


def test_setters_work_at_run_time():
    @batching.batch(max_batch_size=100, batch_wait_timeout_s=FOREVER_S)
    async def count(items):
        return [len(items)] * len(items)

    async def main():
        count.set_max_batch_size(2)
        assert await gather(count, 1, 2) == [2, 2]
        count.set_batch_wait_timeout_s(0)
        assert await gather(count, 1) == [1]

    run(main())
    assert (count._get_max_batch_size(), count._get_batch_wait_timeout_s()) == (2, 0)


def test_a_batch_is_of_one_model_and_tells_which():
    seen = []

    @batching.batch(max_batch_size=4, batch_wait_timeout_s=FOREVER_S)
    async def work(items):
        seen.append((context.get_multiplexed_model_id(), sorted(items)))
        assert context.current_request().request_id == ""
        return items

    async def call(model, item):
        context._serve_request_context.set(context.RequestContext(multiplexed_model_id=model, request_id="r"))
        return await work(item)

    async def main():
        await asyncio.wait_for(asyncio.gather(call("a", 1), call("b", 2), call("a", 3), call("b", 4)), 10)

    run(main())
    assert sorted(seen) == [("a", [1, 3]), ("b", [2, 4])]


def test_a_decorated_class_can_be_pickled_by_value():
    def make():
        class Model:
            @batching.batch(max_batch_size=2, batch_wait_timeout_s=FOREVER_S)
            async def work(self, items):
                return [item + 1 for item in items]

            def shrink(self):
                self.work.set_max_batch_size(1)

        return Model

    cls = pickle.loads(cloudpickle.dumps(make()))

    async def main():
        model = cls()
        model.shrink()
        assert await asyncio.wait_for(model.work(1), 10) == 2

    run(main())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_batch_size": 0}, ValueError),
        ({"max_batch_size": "3"}, TypeError),
        ({"max_batch_size": 1.5}, TypeError),
        ({"batch_wait_timeout_s": -1}, ValueError),
        ({"batch_wait_timeout_s": "a"}, TypeError),
        ({"max_concurrent_batches": 0}, TypeError),
        ({"batch_size_fn": 3}, TypeError),
    ],
)
def test_wrong_options(options, error):
    with pytest.raises(error, match=next(iter(options))):
        batching.batch(**options)


def test_only_async_functions():
    with pytest.raises(TypeError, match="async def"):
        batching.batch(lambda items: items)
