"""Concurrency groups, limits of pending calls, defaults of methods, order of repeated calls."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.gate import Gate
from tests.polling import eventually
from tests.under_test import OWN, exceptions, ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0, concurrency_groups={"io": 2, "one": 1})
class Threads:
    def __init__(self) -> None:
        self.seen: list[int] = []

    @ray.method(concurrency_group="io")
    def wait(self, gate: Any) -> int:
        ray.get(gate.pass_through.remote())
        return threading.get_ident()

    @ray.method(concurrency_group="one")
    def note(self, value: int) -> int:
        self.seen.append(value)
        return threading.get_ident()

    def plain(self) -> int:
        return threading.get_ident()

    def all_seen(self) -> list[int]:
        return self.seen


@ray.remote(num_cpus=0, concurrency_groups={"io": 2})
class Coroutines:
    @ray.method(concurrency_group="io")
    async def wait(self, gate: Any) -> str:
        await gate.pass_through.remote()
        return "waited"

    async def plain(self) -> str:
        return "plain"


def waiting(gate: Any, count: int) -> bool:
    return eventually(lambda: ray.get(gate.waiting.remote()) == count)


@pytest.mark.parametrize("kind", [Threads, Coroutines], ids=["threads", "coroutines"])
class TestGroups:
    def test_a_group_has_its_own_limit_and_holds_up_no_other(self, kind: Any) -> None:
        gate, actor = Gate.remote(), kind.remote()
        refs = [actor.wait.remote(gate) for _ in range(4)]
        assert waiting(gate, 2)
        ray.get(actor.plain.remote(), timeout=30)
        assert ray.get(gate.waiting.remote()) == 2
        ray.get(gate.open.remote())
        assert len(ray.get(refs, timeout=30)) == 4

    def test_a_call_may_choose_another(self, kind: Any) -> None:
        gate, actor = Gate.remote(), kind.remote()
        refs = [actor.wait.remote(gate) for _ in range(2)]
        assert waiting(gate, 2)
        blocked = actor.plain.options(concurrency_group="io").remote()
        assert ray.wait([blocked], timeout=0.2)[0] == []
        ray.get(gate.open.remote())
        ray.get([blocked, *refs], timeout=30)


def test_a_group_of_one_keeps_the_order_on_one_thread() -> None:
    actor = Threads.remote()
    idents = ray.get([actor.note.remote(i) for i in range(20)])
    assert len(set(idents)) == 1
    assert ray.get(actor.all_seen.remote()) == list(range(20))
    assert len(set(ray.get([actor.plain.remote() for _ in range(5)]))) == 1


@pytest.mark.skipif(not OWN, reason="a dict only there")
def test_groups_as_a_list() -> None:
    @ray.remote(concurrency_groups=[{"name": "io", "max_concurrency": 2}])
    class Listed:
        @ray.method(concurrency_group="io")
        def get(self) -> int:
            return 1

    assert ray.get(Listed.remote().get.remote()) == 1


class TestPendingCalls:
    def test_more_are_refused_where_they_are_made(self) -> None:
        @ray.remote(num_cpus=0, max_pending_calls=2)
        class Busy:
            def work(self, gate: Any) -> int:
                ray.get(gate.pass_through.remote())
                return 1

        gate, busy = Gate.remote(), Busy.remote()
        refs = [busy.work.remote(gate) for _ in range(2)]
        with pytest.raises(exceptions.PendingCallsLimitExceeded, match="more than 2 tasks are queued"):
            busy.work.remote(gate)
        ray.get(gate.open.remote())
        assert ray.get(refs) == [1, 1]
        assert ray.get(busy.work.remote(gate)) == 1


class TestNamesThatAreTaken:
    def test_the_error(self) -> None:
        first = Threads.options(name="taken").remote()
        with pytest.raises(
            exceptions.ActorAlreadyExistsError, match=r"The name taken .* is already taken"
        ) as caught:
            Threads.options(name="taken").remote()
        assert isinstance(caught.value, ValueError)
        assert ray.get(first.all_seen.remote()) == []

    def test_many_at_once_get_the_same(self) -> None:
        @ray.remote(num_cpus=0)
        class Single:
            def pid(self) -> int:
                return os.getpid()

        @ray.remote(num_cpus=0)
        def find() -> int:
            actor = Single.options(name="single", get_if_exists=True, lifetime="detached").remote()
            pid: int = ray.get(actor.pid.remote())
            return pid

        assert len(set(ray.get([find.remote() for _ in range(6)]))) == 1
        ray.kill(ray.get_actor("single"))


def test_types_are_public() -> None:
    actor = Threads.remote()
    assert isinstance(Threads, ray.actor.ActorClass)
    assert isinstance(actor, ray.actor.ActorHandle)
    assert isinstance(actor.plain, ray.actor.ActorMethod)


def test_a_bare_method_decorator_changes_nothing() -> None:
    @ray.remote
    class Bare:
        @ray.method
        def get(self) -> int:
            return 1

    assert ray.get(Bare.remote().get.remote()) == 1


@pytest.mark.skipif(not OWN, reason="the other engine loses the order of the calls")
def test_repeated_calls_keep_their_order(tmp_path: Path) -> None:
    @ray.remote(max_restarts=1, max_task_retries=1)
    class Ordered:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def add(self, value: int) -> list[int]:
            mark = tmp_path / "died"
            if value == 5 and not mark.exists():
                mark.touch()
                os._exit(1)
            self.seen.append(value)
            return list(self.seen)

    actor = Ordered.remote()
    last = ray.get([actor.add.remote(i) for i in range(10)])[-1]
    assert last == sorted(last)
    assert last[-5:] == [5, 6, 7, 8, 9]


def test_the_exit_of_an_async_actor_can_be_seen() -> None:
    @ray.remote
    class Async:
        async def leave(self, gate: Any) -> None:
            try:
                ray.actor.exit_actor()
            except exceptions.AsyncioActorExit:
                await gate.open.remote()
                raise

    gate = Gate.remote()
    ref = Async.remote().leave.remote(gate)
    ray.get(gate.pass_through.remote(), timeout=30)
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(ref)


def test_one_loop_for_all_calls() -> None:
    @ray.remote
    class Async:
        async def loop(self) -> int:
            return id(asyncio.get_event_loop())

        async def running(self) -> int:
            return id(asyncio.get_running_loop())

    actor = Async.remote()
    assert len(set(ray.get([actor.loop.remote(), actor.running.remote(), actor.loop.remote()]))) == 1


class TestLoopsOfGroups:
    """An async actor's groups have a loop and a thread each."""

    def test_a_coroutine_that_blocks_holds_up_only_its_group(self) -> None:
        @ray.remote(num_cpus=0, concurrency_groups={"io": 2, "compute": 1})
        class Mixed:
            @ray.method(concurrency_group="compute")
            async def block(self, gate: Any) -> int:
                ray.get(gate.pass_through.remote())
                return threading.get_ident()

            @ray.method(concurrency_group="io")
            async def read(self) -> tuple[int, int]:
                return threading.get_ident(), id(asyncio.get_running_loop())

            async def plain(self) -> tuple[int, int]:
                return threading.get_ident(), id(asyncio.get_running_loop())

        gate, actor = Gate.remote(), Mixed.remote()
        blocked = actor.block.remote(gate)
        assert waiting(gate, 1)
        reads = ray.get([actor.read.remote() for _ in range(3)], timeout=30)
        plains = ray.get([actor.plain.remote() for _ in range(3)], timeout=30)
        assert len(set(reads)) == len(set(plains)) == 1
        ray.get(gate.open.remote())
        assert len({ray.get(blocked, timeout=30), reads[0][0], plains[0][0]}) == 3
        assert reads[0][1] != plains[0][1]

    def test_the_default_group_may_block_too(self) -> None:
        @ray.remote(num_cpus=0, concurrency_groups={"io": 1})
        class Mixed:
            async def block(self, gate: Any) -> str:
                ray.get(gate.pass_through.remote())
                return "passed"

            @ray.method(concurrency_group="io")
            async def read(self) -> str:
                return "read"

        gate, actor = Gate.remote(), Mixed.remote()
        blocked = actor.block.remote(gate)
        assert waiting(gate, 1)
        assert ray.get(actor.read.remote(), timeout=30) == "read"
        ray.get(gate.open.remote())
        assert ray.get(blocked, timeout=30) == "passed"

    def test_calls_of_a_group_can_be_cancelled(self) -> None:
        actor, gate = Coroutines.remote(), Gate.remote()
        ref = actor.wait.remote(gate)
        assert waiting(gate, 1)
        ray.cancel(ref)
        with pytest.raises(exceptions.TaskCancelledError):
            ray.get(ref, timeout=30)
        assert ray.get(actor.plain.remote(), timeout=30) == "plain"

    @pytest.mark.parametrize("groups", [{}, {"io": 2}], ids=["one", "several"])
    @pytest.mark.parametrize("end", ["terminate", "exit", "handle"])
    def test_ends(self, groups: dict[str, int], end: str, tmp_path: Path) -> None:
        @ray.remote(num_cpus=0, concurrency_groups=groups)
        class Ends:
            def __init__(self, path: Path) -> None:
                self.path = path
                self.closed = asyncio.Event()

            async def leave(self) -> None:
                ray.actor.exit_actor()

            async def ready(self) -> bool:
                return True

            def __ray_shutdown__(self) -> None:
                self.path.touch()

        path = tmp_path / "ended"
        actor = Ends.remote(path)
        assert ray.get(actor.ready.remote(), timeout=30)
        if end == "terminate":
            actor.__ray_terminate__.remote()
        elif end == "exit":
            actor.leave.remote()
        else:
            del actor
        assert eventually(path.exists)


@pytest.mark.skipif(not OWN, reason="the other engine does not await it")
@pytest.mark.parametrize("groups", [{}, {"io": 2}], ids=["one", "several"])
def test_the_last_coroutine_of_an_actor(groups: dict[str, int], tmp_path: Path) -> None:
    @ray.remote(num_cpus=0, concurrency_groups=groups)
    class Ends:
        def __init__(self, path: Path) -> None:
            self.path = path
            self.closing = asyncio.Event()

        async def ready(self) -> bool:
            return True

        async def __ray_shutdown__(self) -> None:
            asyncio.get_running_loop().call_soon(self.closing.set)
            await self.closing.wait()
            self.path.touch()

    path = tmp_path / "ended"
    actor = Ends.remote(path)
    assert ray.get(actor.ready.remote(), timeout=30)
    del actor
    assert eventually(path.exists)
