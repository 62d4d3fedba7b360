"""Async actors, and references that are awaited."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.under_test import OWN, exceptions, ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0)
class Service:
    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.inside = 0
        self.most = 0

    async def wait(self) -> str:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.event.wait()
        self.inside -= 1
        return "done"

    async def turn(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0.01)
        self.inside -= 1

    async def release(self) -> int:
        self.event.set()
        return self.most

    async def count(self) -> int:
        return self.inside

    async def fail(self) -> None:
        raise KeyError("async")

    def plain(self) -> str:
        return "plain"

    async def add(self, left: int, right: int) -> int:
        await asyncio.sleep(0)
        return left + right


def test_coroutines_interleave() -> None:
    service = Service.remote()
    waiting = [service.wait.remote() for _ in range(20)]
    assert ray.get(service.release.remote(), timeout=60) >= 0
    assert ray.get(waiting, timeout=60) == ["done"] * 20


def test_a_waiting_coroutine_does_not_hold_up_others() -> None:
    service = Service.remote()
    waiting = service.wait.remote()
    assert ray.get(service.add.remote(1, 2)) == 3
    assert ray.get(service.plain.remote()) == "plain"
    assert ray.wait([waiting], timeout=0)[0] == []
    ray.get(service.release.remote())
    assert ray.get(waiting) == "done"


def test_max_concurrency_bounds_them() -> None:
    service = Service.options(max_concurrency=3).remote()
    ray.get([service.turn.remote() for _ in range(20)], timeout=60)
    assert ray.get(service.release.remote()) == 3


def test_errors_of_coroutines() -> None:
    service = Service.remote()
    with pytest.raises(KeyError) as caught:
        ray.get(service.fail.remote())
    assert isinstance(caught.value, exceptions.RayTaskError)
    assert ray.get(service.add.remote(1, 1)) == 2


def test_references_as_arguments() -> None:
    service = Service.remote()
    assert ray.get(service.add.remote(ray.put(1), service.add.remote(2, 3))) == 6


def test_an_async_actor_awaits_references() -> None:
    @ray.remote
    def double(value: int) -> int:
        return value * 2

    @ray.remote(num_cpus=0)
    class Caller:
        async def run(self, values: list[int]) -> list[int]:
            return await asyncio.gather(*[double.remote(value) for value in values])

    assert ray.get(Caller.remote().run.remote([1, 2, 3])) == [2, 4, 6]


def test_the_driver_awaits_references() -> None:
    @ray.remote
    def double(value: int) -> int:
        return value * 2

    async def main() -> Any:
        one = await double.remote(1)
        others = await asyncio.gather(double.remote(2), double.remote(3))
        return [one, *others]

    assert asyncio.run(main()) == [2, 4, 6]


def test_awaiting_an_error_raises_it() -> None:
    @ray.remote
    def fail() -> None:
        raise ValueError("awaited")

    async def main() -> None:
        await fail.remote()

    with pytest.raises(ValueError, match="awaited"):
        asyncio.run(main())


def test_waiting_with_asyncio() -> None:
    service = Service.remote()

    async def main() -> tuple[int, int]:
        blocked = asyncio.wrap_future(service.wait.remote().future())
        quick = asyncio.wrap_future(service.add.remote(1, 2).future())
        done, pending = await asyncio.wait([blocked, quick], return_when=asyncio.FIRST_COMPLETED)
        await service.release.remote()
        await blocked
        return len(done), len(pending)

    assert asyncio.run(main()) == (1, 1)


def test_async_actors_call_each_other() -> None:
    @ray.remote(num_cpus=0)
    class Player:
        def set_other(self, other: Any) -> None:
            self.other = other

        async def play(self, left: int) -> int:
            if left == 0:
                return 0
            return 1 + await self.other.play.remote(left - 1)

    ping, pong = Player.remote(), Player.remote()
    ray.get([ping.set_other.remote(pong), pong.set_other.remote(ping)])
    assert ray.get(ping.play.remote(10), timeout=60) == 10


def test_many_calls() -> None:
    service = Service.remote()
    assert ray.get([service.add.remote(i, 1) for i in range(300)]) == list(range(1, 301))


def test_exit_actor_from_a_coroutine() -> None:
    @ray.remote(num_cpus=0)
    class Leaver:
        async def leave(self) -> None:
            ray.actor.exit_actor()

    leaver = Leaver.remote()
    with pytest.raises(exceptions.RayActorError):
        ray.get(leaver.leave.remote(), timeout=60)


def test_local_state_of_one_loop_is_shared() -> None:
    @ray.remote(num_cpus=0)
    class Queue:
        def __init__(self) -> None:
            self.queue: asyncio.Queue[int] = asyncio.Queue()

        async def put(self, value: int) -> None:
            await self.queue.put(value)

        async def get(self) -> int:
            return await self.queue.get()

    queue = Queue.remote()
    taken = [queue.get.remote() for _ in range(5)]
    for i in range(5):
        queue.put.remote(i)
    assert sorted(ray.get(taken, timeout=60)) == [0, 1, 2, 3, 4]


class TestConstructors:
    """They run in the loop."""

    def test_one_may_start_tasks(self) -> None:
        @ray.remote
        class Ticker:
            def __init__(self) -> None:
                self.ticks = 0
                self.task = asyncio.get_running_loop().create_task(self.tick())
                self.second = asyncio.Event()

            async def tick(self) -> None:
                while True:
                    self.ticks += 1
                    if self.ticks == 2:
                        self.second.set()
                    await asyncio.sleep(0.01)

            async def wait(self) -> int:
                await self.second.wait()
                return self.ticks

        assert ray.get(Ticker.remote().wait.remote(), timeout=60) >= 2

    def test_one_may_be_a_coroutine(self) -> None:
        @ray.remote
        def one() -> int:
            return 1

        @ray.remote
        class Awaits:
            async def __init__(self, plus: int) -> None:  # type: ignore[misc]
                self.value = await one.remote() + plus

            async def get(self) -> int:
                return self.value

        assert ray.get(Awaits.remote(2).get.remote(), timeout=60) == 3

    @pytest.mark.parametrize("is_coroutine", [False, True])
    def test_what_it_raises_is_the_death_of_the_actor(self, is_coroutine: bool) -> None:
        class Plain:
            def __init__(self) -> None:
                raise ValueError("not today")

            async def get(self) -> int:
                return 1

        class Coroutine:
            async def __init__(self) -> None:  # type: ignore[misc]
                raise ValueError("not today")

            async def get(self) -> int:
                return 1

        actor = ray.remote(Coroutine if is_coroutine else Plain).remote()
        with pytest.raises(exceptions.ActorDiedError, match="not today"):
            ray.get(actor.get.remote(), timeout=60)

    def test_one_may_wait_for_others_without_await(self) -> None:
        @ray.remote
        def one() -> int:
            return 1

        @ray.remote
        class Waits:
            def __init__(self) -> None:
                self.value = ray.get(one.remote())

            async def get(self) -> int:
                return self.value

        assert ray.get(Waits.remote().get.remote(), timeout=60) == 1


@ray.remote(num_cpus=0)
class Returning:
    """Its plain methods return things that could be awaited."""

    def __init__(self) -> None:
        self.ref = ray.put("value")

    async def coroutine(self) -> str:
        await asyncio.sleep(0)
        return "awaited"

    async def gives_reference(self) -> Any:
        return self.ref

    def reference(self) -> Any:
        return self.ref

    def references(self) -> Any:
        return self.ref, self.ref

    def task(self) -> Any:
        return asyncio.ensure_future(self.coroutine())

    def its_coroutine(self) -> Any:
        return self.coroutine()


def test_a_reference_that_a_plain_method_returns_stays_one() -> None:
    actor = Returning.remote()
    for method in (actor.reference, actor.gives_reference):
        returned = ray.get(method.remote())
        assert isinstance(returned, ray.ObjectRef)
        assert ray.get(returned) == "value"
    first, second = actor.references.options(num_returns=2).remote()
    assert ray.get(ray.get([first, second])) == ["value", "value"]


def test_only_coroutines_are_awaited() -> None:
    actor = Returning.remote()
    with pytest.raises(TypeError, match=r"cannot pickle '_asyncio.Task' object"):
        ray.get(actor.task.remote())
    if OWN:  # there, not even these
        assert ray.get(actor.its_coroutine.remote()) == "awaited"


def test_a_class_method_may_be_the_only_coroutine() -> None:
    class OfTheClass:
        @classmethod
        async def name(cls) -> str:
            return cls.__name__

    assert ray.get(ray.remote(OfTheClass).remote().name.remote()) == "OfTheClass"
