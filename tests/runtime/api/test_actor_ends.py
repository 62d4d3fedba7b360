"""How actors end: by themselves, by their users, by their owners; what becomes of calls; what their errors say."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.gate import Gate
from tests.polling import eventually
from tests.under_test import exceptions, ray

pytestmark = pytest.mark.usefixtures("session")

EXITED = "INTENDED_USER_EXIT"


def says_of_its_death(actor: Any, words: str) -> bool:
    """Whether a call tells that the actor is dead, in these words."""
    try:
        ray.get(actor.get.remote())
    except exceptions.ActorDiedError as error:
        return words in str(error)
    return False


@ray.remote
class Sync:
    def __init__(self, notes: str | None = None) -> None:
        if notes is not None:
            atexit.register(lambda: Path(notes).write_text("bye"))

    def get(self) -> int:
        return 1

    def leave(self) -> None:
        ray.actor.exit_actor()

    def leave_although_caught(self) -> str:
        try:
            ray.actor.exit_actor()
        except BaseException:
            return "caught"

    def leave_with(self, status: Any) -> None:
        sys.exit(status)

    def crash(self) -> None:
        os._exit(3)


@ray.remote
class Async:
    def __init__(self, notes: str) -> None:
        atexit.register(lambda: Path(notes).write_text("bye"))
        self.left = asyncio.Event()

    async def get(self) -> int:
        return 1

    async def get_when_the_other_left(self) -> int:
        await self.left.wait()
        await asyncio.sleep(0.05)
        return 2

    async def leave(self) -> None:
        self.left.set()
        ray.actor.exit_actor()


@ray.remote(max_concurrency=2)
class Threaded:
    def __init__(self, notes: str) -> None:
        atexit.register(lambda: Path(notes).write_text("bye"))
        self.left = threading.Event()

    def get(self) -> int:
        return 1

    def get_when_the_other_left(self) -> int:
        self.left.wait(60)
        return 2

    def leave(self) -> None:
        self.left.set()
        ray.actor.exit_actor()


class TestExit:
    def test_calls_before_it_are_answered_and_later_ones_fail(self, tmp_path: Path) -> None:
        actor = Sync.remote(str(tmp_path / "notes"))
        before, leaving, after = actor.get.remote(), actor.leave.remote(), actor.get.remote()
        assert ray.get(before) == 1
        for ref in (leaving, after, actor.get.remote()):
            with pytest.raises(exceptions.ActorDiedError, match=EXITED):
                ray.get(ref)
        assert eventually((tmp_path / "notes").exists)

    @pytest.mark.parametrize("kind", [Async, Threaded], ids=["async", "threaded"])
    def test_calls_beside_it_come_to_their_end(self, kind: Any, tmp_path: Path) -> None:
        actor = kind.remote(str(tmp_path / "notes"))
        assert ray.get(actor.get.remote()) == 1
        beside, leaving = actor.get_when_the_other_left.remote(), actor.leave.remote()
        assert ray.get(beside) == 2
        with pytest.raises(exceptions.ActorDiedError, match=EXITED):
            ray.get(leaving)
        with pytest.raises(exceptions.ActorDiedError, match="The actor is dead because"):
            ray.get(actor.get.remote())
        assert eventually((tmp_path / "notes").exists)

    def test_who_catches_it_leaves_all_the_same(self) -> None:
        with pytest.raises(exceptions.ActorDiedError, match=EXITED):
            ray.get(Sync.remote().leave_although_caught.remote())

    def test_in_the_constructor(self) -> None:
        @ray.remote(max_restarts=3)
        class Short:
            def __init__(self) -> None:
                ray.actor.exit_actor()

            def get(self) -> int:
                return 1

        with pytest.raises(exceptions.ActorDiedError, match=EXITED):
            ray.get(Short.remote().get.remote())

    def test_it_is_not_restarted(self) -> None:
        actor = Sync.options(max_restarts=5).remote()
        actor.leave.remote()
        with pytest.raises(exceptions.ActorDiedError):
            ray.get(actor.get.remote())

    def test_outside_of_an_actor(self) -> None:
        @ray.remote
        def task() -> None:
            ray.actor.exit_actor()

        with pytest.raises(TypeError, match="non-actor"):
            ray.actor.exit_actor()
        with pytest.raises(TypeError, match="non-actor"):
            ray.get(task.remote())

    @pytest.mark.parametrize("where", ["a coroutine", "a background task", "a thread"])
    def test_from_anywhere_in_an_async_actor(self, where: str) -> None:
        @ray.remote
        class Spread:
            async def leave(self) -> str:
                async def inner() -> None:
                    ray.actor.exit_actor()

                if where == "a coroutine":
                    await asyncio.gather(inner(), asyncio.sleep(0))
                elif where == "a background task":
                    self.task = asyncio.ensure_future(inner())
                    await asyncio.sleep(0.1)
                else:
                    await asyncio.get_running_loop().run_in_executor(None, ray.actor.exit_actor)
                return "left"

            async def get(self) -> int:
                return 1

        actor = Spread.remote()
        with pytest.raises(exceptions.ActorDiedError, match=EXITED):
            ray.get(actor.leave.remote())
        with pytest.raises(exceptions.ActorDiedError, match=EXITED):
            ray.get(actor.get.remote())

    def test_from_a_thread_of_its_own(self) -> None:
        @ray.remote
        class Spread:
            def leave(self) -> str:
                thread = threading.Thread(target=ray.actor.exit_actor)
                thread.start()
                thread.join()
                return "left"

        actor = Spread.remote()
        assert ray.get(actor.leave.remote()) == "left"
        with pytest.raises(exceptions.ActorDiedError, match=EXITED):
            ray.get(actor.leave.remote())

    def test_terminate_runs_after_the_queue_and_runs_handlers(self, tmp_path: Path) -> None:
        actor = Sync.remote(str(tmp_path / "notes"))
        before, end = [actor.get.remote() for _ in range(3)], actor.__ray_terminate__.remote()
        assert ray.get(before) == [1, 1, 1]
        with pytest.raises(exceptions.ActorDiedError):
            ray.get(end)
        assert eventually((tmp_path / "notes").exists)


class TestSysExit:
    @pytest.mark.parametrize(
        ("status", "words"), [(0, "INTENDED_USER_EXIT"), (1, "SYSTEM_ERROR"), ("text", "SYSTEM_ERROR")]
    )
    def test_a_status_tells_whether_it_was_wanted(self, status: Any, words: str) -> None:
        with pytest.raises(exceptions.ActorDiedError, match=words):
            ray.get(Sync.remote().leave_with.remote(status))

    def test_a_bad_status_lets_it_restart(self) -> None:
        actor = Sync.options(max_restarts=1, max_task_retries=1).remote()
        actor.leave_with.options(max_task_retries=0).remote(1)
        assert ray.get(actor.get.remote()) == 1


class TestLastHandlers:
    @pytest.mark.parametrize("how", ["terminated", "out of scope"])
    def test_they_run_when_an_actor_ends_in_order(self, how: str, tmp_path: Path) -> None:
        @ray.remote
        class Careful:
            def __init__(self) -> None:
                atexit.register(lambda: (tmp_path / "atexit").touch())

            def get(self) -> int:
                return 1

            def __ray_shutdown__(self) -> None:
                (tmp_path / "shutdown").touch()

            def __del__(self) -> None:
                (tmp_path / "del").touch()

        actor = Careful.remote()
        assert ray.get(actor.get.remote()) == 1
        if how == "terminated":
            actor.__ray_terminate__.remote()
        else:
            del actor
            gc.collect()
        assert eventually(lambda: {path.name for path in tmp_path.iterdir()} == {"atexit", "shutdown", "del"})

    def test_a_kill_runs_none(self, tmp_path: Path) -> None:
        actor = Sync.remote(str(tmp_path / "notes"))
        assert ray.get(actor.get.remote()) == 1
        ray.kill(actor)
        with pytest.raises(exceptions.ActorDiedError, match="it was killed by"):
            ray.get(actor.get.remote())
        assert not (tmp_path / "notes").exists()


class TestDeathIsExplained:
    def test_with_the_facts(self) -> None:
        actor = Sync.options(name="explained", namespace="of-tests").remote()
        pid = ray.get(actor.__ray_call__.remote(lambda self: os.getpid()))
        actor.crash.remote()
        with pytest.raises(exceptions.ActorDiedError) as caught:
            ray.get(actor.get.remote())
        text = str(caught.value)
        for fact in (
            "The actor died unexpectedly before finishing this task",
            "class_name: Sync",
            f"actor_id: {actor._actor_id.hex()}",
            f"pid: {pid}",
            "name: explained",
            "namespace: of-tests",
            "ip: ",
            "The actor is dead because its worker process has died",
        ):
            assert fact in text
        assert caught.value.actor_id == actor._actor_id.hex()
        assert not caught.value.actor_init_failed

    def test_a_constructor_that_raises(self) -> None:
        @ray.remote
        class Bad:
            def __init__(self) -> None:
                raise ValueError("no luck")

            def get(self) -> int:
                return 1

        actor = Bad.remote()
        with pytest.raises(exceptions.ActorDiedError, match="error raised in its creation task") as caught:
            ray.get(actor.get.remote())
        assert "ValueError: no luck" in str(caught.value)
        assert caught.value.actor_init_failed
        assert caught.value.actor_id == actor._actor_id.hex()

    def test_killed_before_it_ran(self) -> None:
        actor = Sync.options(resources={"of another world": 1}).remote()
        call = actor.get.remote()
        ray.kill(actor)
        with pytest.raises(exceptions.ActorDiedError, match="The actor never ran"):
            ray.get(call)

    def test_an_owner_that_dies(self) -> None:
        @ray.remote
        class Owner:
            def make(self) -> Any:
                self.actor = Sync.remote()
                return self.actor

            def crash(self) -> None:
                os._exit(1)

        owner = Owner.remote()
        actor = ray.get(owner.make.remote())
        assert ray.get(actor.get.remote()) == 1
        owner.crash.remote()

        assert eventually(lambda: says_of_its_death(actor, "its owner has died"))


class TestArgumentsOfConstructors:
    def test_a_named_actor_is_made_without_waiting_for_them(self) -> None:
        @ray.remote
        class Holder:
            def __init__(self, value: int) -> None:
                self.value = value

            def get(self) -> int:
                return self.value

        gate = Gate.remote()
        holder = Holder.options(name="waits").remote(gate.pass_through.remote(7))
        found = ray.get_actor("waits").get.remote()
        with pytest.raises(exceptions.GetTimeoutError):
            ray.get(found, timeout=0.1)
        ray.get(gate.open.remote())
        assert ray.get([found, holder.get.remote()]) == [7, 7]

    def test_an_error_among_them_is_the_death_of_the_actor(self) -> None:
        @ray.remote
        def bad() -> None:
            raise KeyError("argument")

        @ray.remote
        class Holder:
            def __init__(self, value: int) -> None:
                self.value = value

            def get(self) -> int:
                return self.value

        @ray.remote
        def ask(actor: Any) -> int:
            value: int = ray.get(actor.get.remote())
            return value

        actor = Holder.remote(bad.remote())
        with pytest.raises(exceptions.ActorDiedError, match="argument"):
            ray.get(actor.get.remote())
        with pytest.raises(exceptions.ActorDiedError, match="argument"):
            ray.get(ask.remote(actor))


def test_a_handle_found_by_name_does_not_keep_the_actor() -> None:
    actor = Sync.options(name="weak").remote()
    found = ray.get_actor("weak")
    assert ray.get(found.get.remote()) == 1
    del actor
    gc.collect()

    assert eventually(lambda: says_of_its_death(found, "references to the actor were removed"))
