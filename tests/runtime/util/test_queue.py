"""`util.queue.Queue`: shared by tasks, actors and the driver."""

from __future__ import annotations

import asyncio
import importlib
import queue as stdlib_queue
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import NAME, exceptions, ray

queue: Any = importlib.import_module(f"{NAME}.util.queue")
pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def put_all(target: Any, items: list[int]) -> None:
    for item in items:
        target.put(item)


@ray.remote
def take(source: Any, count: int) -> list[Any]:
    return [source.get(timeout=60) for _ in range(count)]


def test_first_in_first_out() -> None:
    q = queue.Queue()
    assert q.empty()
    for item in range(5):
        q.put(item)
        assert q.qsize() == q.size() == len(q) == item + 1
    assert not q.empty()
    assert [q.get() for _ in range(5)] == list(range(5))


def test_full_and_empty() -> None:
    q = queue.Queue(maxsize=1)
    assert q.maxsize == 1
    with pytest.raises(queue.Empty):
        q.get_nowait()
    with pytest.raises(queue.Empty):
        q.get(timeout=0.05)
    q.put("one")
    assert q.full()
    with pytest.raises(queue.Full):
        q.put_nowait("two")
    with pytest.raises(queue.Full):
        q.put("two", block=False)
    with pytest.raises(queue.Full):
        q.put("two", timeout=0.05)
    assert q.get() == "one"
    assert issubclass(queue.Full, stdlib_queue.Full)
    assert issubclass(queue.Empty, stdlib_queue.Empty)
    with pytest.raises(ValueError, match="non-negative"):
        q.put(1, timeout=-1)
    with pytest.raises(ValueError, match="non-negative"):
        q.get(timeout=-1)


def test_batches_go_in_whole_or_not_at_all() -> None:
    q = queue.Queue(maxsize=3)
    q.put_nowait_batch([1, 2])
    with pytest.raises(queue.Full, match="Cannot add 2 items"):
        q.put_nowait_batch([3, 4])
    with pytest.raises(queue.Empty, match="Cannot get 3 items"):
        q.get_nowait_batch(3)
    assert q.get_nowait_batch(2) == [1, 2]
    assert q.get_nowait_batch(0) == []
    with pytest.raises(TypeError):
        q.put_nowait_batch(1)
    with pytest.raises(TypeError):
        q.get_nowait_batch(1.5)
    with pytest.raises(ValueError, match="nonnegative"):
        q.get_nowait_batch(-1)


def test_between_tasks() -> None:
    q = queue.Queue(maxsize=2)
    producer = put_all.remote(q, list(range(10)))
    consumer = take.remote(q, 10)
    assert ray.get(consumer, timeout=30) == list(range(10))
    ray.get(producer)
    waiting = take.remote(q, 1)
    assert ray.wait([waiting], timeout=0.05)[0] == []
    q.put("late")
    assert ray.get(waiting, timeout=30) == ["late"]


def test_async_methods() -> None:
    async def main() -> Any:
        q = queue.Queue(maxsize=1)
        await q.put_async(1)
        with pytest.raises(queue.Full):
            await q.put_async(2, block=False)
        with pytest.raises(queue.Full):
            await q.put_async(2, timeout=0.05)
        got = await q.get_async()
        with pytest.raises(queue.Empty):
            await q.get_async(block=False)
        with pytest.raises(ValueError, match="non-negative"):
            await q.get_async(timeout=-1)
        return got

    assert asyncio.run(main()) == 1


def test_its_actor_has_options() -> None:
    q = queue.Queue(actor_options={"name": "the queue", "num_cpus": 1})
    q.put(1)
    assert ray.get_actor("the queue") == q.actor
    q.shutdown()


@pytest.mark.parametrize("force", [False, True])
def test_shutdown(force: bool) -> None:
    q = queue.Queue()
    q.put(1)
    actor = q.actor
    q.shutdown(force=force, grace_period_s=5)
    assert q.actor is None
    q.shutdown()

    def is_gone() -> bool:
        try:
            ray.get(actor.empty.remote(), timeout=60)
        except exceptions.RayActorError:
            return True
        return False

    assert eventually(is_gone)
