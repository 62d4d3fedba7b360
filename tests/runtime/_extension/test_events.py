"""What a subscription tells of objects, generators, actors, nodes and keys."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import runtime as ray
from runtime import cluster_utils
from runtime._core.actors import ActorState
from runtime._core.nodes import NodeState
from runtime._extension.events import Subscription, ready
from runtime._extension.news import ActorChanged, ItemReady, KeyChanged, News, NodeChanged, ObjectReady
from runtime.experimental.internal_kv import _internal_kv_del, _internal_kv_put
from tests.polling import eventually

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def value(size: int) -> bytes:
    return bytes(size)


@ray.remote
def fails() -> None:
    raise ValueError("on purpose")


@ray.remote
class Gate:
    """Opens when it is told to."""

    def __init__(self) -> None:
        self._open = asyncio.Event()

    async def passed(self) -> str:
        await self._open.wait()
        return "through"

    async def open(self) -> None:
        self._open.set()


def take(subscription: Subscription, count: int) -> list[News]:
    """The next news, exactly so many."""
    news: list[News] = []
    while len(news) < count:
        more = subscription.take(60)
        assert more, f"only {news}"
        news += more
    assert len(news) == count
    return news


def by_ref(news: Iterable[News]) -> dict[Any, ObjectReady]:
    return {one.ref: one for one in news if isinstance(one, ObjectReady)}


class Unloadable:
    """Fails where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, ()


def _refuse() -> None:
    raise RuntimeError("this value must not be loaded")


def test_many_objects_at_once_without_their_values() -> None:
    small, large, failed = value.remote(10), value.remote(1 << 20), fails.remote()
    put = ray.put(Unloadable())
    with Subscription() as subscription:
        subscription.watch_ready([small, large, failed, put, small])
        told = by_ref(take(subscription, 4))
        assert subscription.take(0) == []
    node = ray.get_runtime_context().get_node_id()
    assert not told[small].failed
    assert 10 <= told[small].size_bytes < 1000
    assert told[small].node_ids == ()
    assert told[large].node_ids == (node,)
    assert told[large].size_bytes > 1 << 20
    assert told[failed].failed
    assert not told[put].failed
    with pytest.raises(ValueError, match="on purpose"):
        ray.get(failed)


def test_an_object_is_told_when_it_is_ready_and_not_before() -> None:
    gate = Gate.remote()
    ref = gate.passed.remote()
    with Subscription() as subscription:
        subscription.watch_ready([ref])
        assert subscription.take(0.05) == []
        gate.open.remote()
        assert [one.ref for one in take(subscription, 1) if isinstance(one, ObjectReady)] == [ref]


def test_borrowed_objects_are_asked_for_together() -> None:
    @ray.remote
    def watch(refs: list[Any]) -> list[tuple[bool, int]]:
        with Subscription() as subscription:
            subscription.watch_ready(refs)
            told = by_ref(take(subscription, len(refs)))
        return [(told[ref].failed, len(told[ref].node_ids)) for ref in refs]

    refs = [value.remote(10), value.remote(1 << 20), fails.remote(), ray.put(1)]
    assert ray.get(watch.remote(refs)) == [(False, 0), (False, 1), (True, 0), (False, 0)]


def test_an_object_is_watched_until_it_is_forgotten() -> None:
    gate = Gate.remote()
    first, second = gate.passed.remote(), gate.passed.remote()
    with Subscription() as subscription:
        subscription.watch_ready([first, second])
        subscription.forget([first])
        gate.open.remote()
        assert list(by_ref(take(subscription, 1))) == [second]
        assert not first._entry.callbacks


def test_a_closed_subscription_leaves_nothing_behind() -> None:
    gate = Gate.remote()
    ref = gate.passed.remote()
    subscription = Subscription()
    subscription.watch_ready([ref])
    subscription.watch_nodes()
    assert ref._entry.callbacks
    subscription.close()
    subscription.close()
    assert not ref._entry.callbacks
    assert subscription.take() == []
    assert list(subscription) == []
    subscription.watch_ready([ref])
    assert not ref._entry.callbacks
    gate.open.remote()
    assert ray.get(ref) == "through"


def test_close_ends_a_waiting_thread() -> None:
    subscription = Subscription()
    taken: list[Any] = []
    thread = threading.Thread(target=lambda: taken.append(subscription.take()))
    thread.start()
    time.sleep(0.05)
    subscription.close()
    thread.join(60)
    assert taken == [[]]


def test_callbacks_run_without_the_lock_one_at_a_time_and_may_raise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[News] = []
    at_once: list[int] = []
    running = 0

    def callback(news: list[News]) -> None:
        nonlocal running
        running += 1
        at_once.append(running)
        other: list[Any] = []  # another thread can take the lock
        thread = threading.Thread(target=lambda: other.append(ray.put(1)))
        thread.start()
        thread.join(60)
        assert other
        assert ray.get(ray.put(1)) == 1
        told.extend(news)
        running -= 1
        raise RuntimeError("nobody minds")

    subscription = Subscription()
    with caplog.at_level(logging.ERROR):
        subscription.call(callback)
        refs = [value.remote(i) for i in range(200)]
        subscription.watch_ready(refs)
        assert eventually(lambda: len(told) == 200)
        assert ray.get(refs[-1]) == bytes(199)
    subscription.close()
    assert set(by_ref(told)) == set(refs)
    assert set(at_once) == {1}


def test_a_coroutine_waits_for_many() -> None:
    async def main() -> set[Any]:
        subscription = Subscription()
        subscription.watch_ready(refs)
        told = set()
        async for news in subscription:
            assert isinstance(news, ObjectReady)
            told.add(news.ref)
            if len(told) == len(refs):
                subscription.close()
        return told

    refs = [value.remote(i) for i in range(50)]
    assert asyncio.run(main()) == set(refs)


def test_a_coroutine_waits_for_all() -> None:
    refs = [value.remote(10), fails.remote(), value.remote(1 << 20)]
    told = asyncio.run(ready([*refs, refs[0]]))
    assert [one.ref for one in told] == [*refs, refs[0]]
    assert [one.failed for one in told] == [False, True, False, False]
    assert asyncio.run(ready([])) == []


def test_a_cancelled_coroutine_loses_nothing() -> None:
    gate = Gate.remote()
    ref = gate.passed.remote()

    async def main() -> None:
        with Subscription() as subscription:
            subscription.watch_ready([ref])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await subscription.take_async()
            assert not subscription._wakers
            gate.open.remote()
            async with asyncio.timeout(60):
                assert len(await subscription.take_async()) == 1

    asyncio.run(main())


def test_generators_tell_of_items_and_leave_them_where_they_are() -> None:
    @ray.remote(num_returns="streaming")
    def count(n: int) -> Iterable[int]:
        yield from range(n)

    generator = count.remote(3)
    items = []
    with Subscription() as subscription:
        while True:
            subscription.watch_item(generator)
            assert take(subscription, 1) == [ItemReady(generator)]
            ref = generator._next_sync(0) if not generator.is_finished() else None
            if ref is None:
                break
            items.append(ray.get(ref))
    assert items == [0, 1, 2]


def test_actor_states_until_the_end() -> None:
    @ray.remote(max_restarts=1)
    class Restarting:
        def pid(self) -> int:
            import os

            return os.getpid()

    actor = Restarting.remote()
    ray.get(actor.pid.remote())
    with Subscription() as subscription:
        subscription.watch_actor(actor._actor_id.binary())
        seen = []

        def until(state: ActorState) -> ActorChanged:
            while True:
                for one in subscription.take(60):
                    assert isinstance(one, ActorChanged)
                    assert one.actor_id == actor._actor_id.hex()
                    seen.append(one.state)
                    if one.state is state:
                        return one

        assert until(ActorState.ALIVE).node_id == ray.get_runtime_context().get_node_id()
        ray.kill(actor, no_restart=False)
        assert until(ActorState.ALIVE).restarts == 1
        ray.kill(actor)
        assert "ray.kill" in until(ActorState.DEAD).reason
        assert not [poll for poll in subscription._polls if not poll.stopped]


def test_an_unknown_actor_is_dead() -> None:
    with Subscription() as subscription:
        subscription.watch_actor(b"\1" * 16)
        (told,) = take(subscription, 1)
    assert isinstance(told, ActorChanged)
    assert told.state is ActorState.DEAD
    assert "there is no actor" in told.reason


def test_keys() -> None:
    _internal_kv_put("key", "before", namespace="space")
    with Subscription() as subscription:
        subscription.watch_key(b"key", "space")
        assert take(subscription, 1) == [KeyChanged("space", b"key", b"before")]
        _internal_kv_put("key", "after", namespace="space")
        assert take(subscription, 1) == [KeyChanged("space", b"key", b"after")]
        _internal_kv_del("key", namespace="space")
        assert take(subscription, 1) == [KeyChanged("space", b"key", None)]


def test_a_key_that_is_forgotten_is_told_no_more() -> None:
    with Subscription() as subscription:
        for key in (b"kept", b"forgotten"):
            subscription.watch_key(key, "space")
        assert len([*take(subscription, 2)]) == 2
        subscription.forget_key(b"forgotten", "space")
        _internal_kv_put("forgotten", "x", namespace="space")
        _internal_kv_put("kept", "y", namespace="space")
        assert take(subscription, 1) == [KeyChanged("space", b"kept", b"y")]
        subscription.watch_key(b"forgotten", "space")
        assert take(subscription, 1) == [KeyChanged("space", b"forgotten", b"x")]
    for name in ("kept", "forgotten"):
        _internal_kv_del(name, namespace="space")


def test_a_consumer_that_is_behind_hears_of_the_latest() -> None:
    with Subscription() as subscription:
        subscription.watch_key(b"busy")
        assert eventually(lambda: len(subscription._due) == 1)
        for number in range(100):
            _internal_kv_put("busy", str(number))
        assert len(subscription._due) == 1
        told = take(subscription, 2)
        assert [one.value for one in told if isinstance(one, KeyChanged)] == [None, b"99"]
    _internal_kv_del("busy")


def until(subscription: Subscription, matches: Callable[[NodeChanged], bool]) -> NodeChanged:
    while True:
        for one in subscription.take(60):
            assert isinstance(one, NodeChanged)
            if matches(one):
                return one


def test_nodes_come_and_go(fresh: None) -> None:
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        ray.init(address=cluster.address)
        with Subscription() as subscription:
            subscription.watch_nodes()
            head = until(subscription, lambda node: True)
            assert head.state is NodeState.ALIVE
            assert head.resources["CPU"] == 1
            node = cluster.add_node(num_cpus=2)
            joined = until(subscription, lambda node: node.resources.get("CPU") == 2)
            assert joined.state is NodeState.ALIVE
            cluster.remove_node(node)
            died = until(subscription, lambda node: node.state is NodeState.DEAD)
            assert died.node_id == joined.node_id
            assert died.reason
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_a_lost_session_ends_the_wait(fresh: None) -> None:
    ray.init(num_cpus=1)
    subscription = Subscription()
    subscription.watch_nodes()
    subscription.take(60)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            subscription.take()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    ray.shutdown()
    thread.join(60)
    assert isinstance(errors[0], ray.exceptions.RaySystemError)
