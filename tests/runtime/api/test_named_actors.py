"""Actors with names: look-up, namespaces, detached lifetimes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from runtime._process import core_worker
from tests.polling import eventually
from tests.under_test import NAME, exceptions, ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0)
class Box:
    def __init__(self, value: Any = None) -> None:
        self.value = value

    def set(self, value: Any) -> None:
        self.value = value

    def get(self) -> Any:
        return self.value


def gone(name: str) -> bool:
    try:
        ray.get_actor(name)
    except ValueError:
        return True
    return False


def test_look_up_by_name() -> None:
    box = Box.options(name="looked-up").remote(5)
    same = ray.get_actor("looked-up")
    assert same == box
    assert ray.get(same.get.remote()) == 5
    ray.kill(box)


def test_look_up_from_a_task() -> None:
    box = Box.options(name="from-task").remote()

    @ray.remote
    def fill() -> None:
        ray.get(ray.get_actor("from-task").set.remote("filled"))

    ray.get(fill.remote())
    assert ray.get(box.get.remote()) == "filled"
    ray.kill(box)


def test_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="no-such-actor"):
        ray.get_actor("no-such-actor")


def test_the_empty_name() -> None:
    with pytest.raises(ValueError):
        ray.get_actor("")


def test_a_name_is_taken_once() -> None:
    box = Box.options(name="taken").remote(1)
    with pytest.raises(ValueError, match="taken") as caught:
        Box.options(name="taken").remote(2)
    assert isinstance(caught.value, exceptions.ActorAlreadyExistsError)
    assert ray.get(box.get.remote()) == 1
    ray.kill(box)


def test_get_if_exists() -> None:
    first = Box.options(name="shared", get_if_exists=True).remote(1)
    second = Box.options(name="shared", get_if_exists=True).remote(2)
    assert first == second
    assert ray.get(second.get.remote()) == 1
    ray.kill(first)


def test_get_if_exists_with_the_name_that_the_decorator_gave() -> None:
    @ray.remote(name="decorated")
    class Named:
        def get(self) -> int:
            return 1

    first = Named.remote()
    assert Named.options(get_if_exists=True).remote() == first


def test_a_name_is_free_again_after_kill() -> None:
    box = Box.options(name="reused").remote(1)
    ray.get(box.get.remote())
    ray.kill(box)
    assert eventually(lambda: gone("reused"))
    again = Box.options(name="reused").remote(2)
    assert ray.get(again.get.remote()) == 2
    ray.kill(again)


class TestAfterACrash:
    """The name of an actor that died, though nobody killed it."""

    def crashed(self, name: str, **options: Any) -> Any:
        box = Box.options(name=name, **options).remote()
        ray.get(box.get.remote(), timeout=60)
        with pytest.raises(exceptions.RayActorError):
            ray.get(box.__ray_call__.remote(lambda _box: os._exit(1)), timeout=60)
        with pytest.raises(exceptions.ActorDiedError):
            ray.get(box.get.remote(), timeout=60)
        return box

    def test_it_is_free_when_the_last_handle_goes(self) -> None:
        box = self.crashed("crashed")
        with pytest.raises(ValueError, match="crashed"):
            Box.options(name="crashed").remote()
        for same in (ray.get_actor("crashed"), Box.options(name="crashed", get_if_exists=True).remote()):
            assert same == box
            with pytest.raises(exceptions.ActorDiedError):
                ray.get(same.get.remote(), timeout=60)
        del box, same
        gc.collect()
        assert eventually(lambda: gone("crashed"))
        again = Box.options(name="crashed").remote(2)
        assert ray.get(again.get.remote(), timeout=60) == 2
        ray.kill(again)

    def test_it_is_free_after_kill(self) -> None:
        box = self.crashed("crashed-and-killed")
        ray.kill(box)
        assert eventually(lambda: gone("crashed-and-killed"))

    def test_a_detached_actors_name_is_free_at_once(self) -> None:
        box = self.crashed("crashed-detached", lifetime="detached")
        assert eventually(lambda: gone("crashed-detached"))
        del box

    def test_a_constructor_that_fails_keeps_it_too(self) -> None:
        @ray.remote(num_cpus=0)
        class Wrong:
            def __init__(self) -> None:
                raise RuntimeError("no")

        wrong = Wrong.options(name="wrong").remote()
        with pytest.raises(exceptions.ActorDiedError):
            ray.get(wrong.__ray_ready__.remote(), timeout=60)
        assert ray.get_actor("wrong") == wrong
        del wrong
        gc.collect()
        assert eventually(lambda: gone("wrong"))


def test_a_name_does_not_keep_the_actor() -> None:
    box = Box.options(name="fleeting").remote()
    ray.get(box.get.remote())
    del box
    gc.collect()
    assert eventually(lambda: gone("fleeting"))


def test_names_live_in_namespaces() -> None:
    here = Box.options(name="twice").remote("here")
    there = Box.options(name="twice", namespace="elsewhere").remote("there")
    assert ray.get(ray.get_actor("twice").get.remote()) == "here"
    assert ray.get(ray.get_actor("twice", namespace="elsewhere").get.remote()) == "there"
    with pytest.raises(ValueError):
        ray.get_actor("twice", namespace="third")
    ray.kill(here)
    ray.kill(there)


def test_a_detached_actor_outlives_its_handles() -> None:
    box = Box.options(name="detached", lifetime="detached").remote("kept")
    ray.get(box.get.remote())
    del box
    gc.collect()
    again = ray.get_actor("detached")
    assert ray.get(again.get.remote()) == "kept"
    ray.kill(again)
    assert eventually(lambda: gone("detached"))


def test_a_detached_actor_outlives_the_task_that_made_it() -> None:
    @ray.remote
    def make() -> None:
        ray.get(Box.options(name="by-task", lifetime="detached").remote(7).get.remote())

    ray.get(make.remote())
    box = ray.get_actor("by-task")
    assert ray.get(box.get.remote()) == 7
    ray.kill(box)


def test_a_detached_actor_outlives_its_driver() -> None:
    """Another driver of the same cluster makes one and leaves."""
    address = ray.get_runtime_context().gcs_address
    program = textwrap.dedent(f"""
        import {NAME} as ray
        ray.init(address={address!r}, namespace="shared-space")

        @ray.remote(num_cpus=0)
        class Box:
            def get(self):
                return "from the other driver"

        kept = Box.options(name="kept", lifetime="detached").remote()
        lost = Box.options(name="lost").remote()
        print(ray.get([kept.get.remote(), lost.get.remote()]))
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
    box = ray.get_actor("kept", namespace="shared-space")
    assert ray.get(box.get.remote(), timeout=60) == "from the other driver"

    def lost_is_gone() -> bool:
        try:
            ray.get_actor("lost", namespace="shared-space")
        except ValueError:
            return True
        return False

    assert eventually(lost_is_gone)
    ray.kill(box)


@pytest.mark.skipif(NAME != "runtime", reason="looks into our tables")
def test_what_was_meant_for_an_actor_that_exists_already_is_let_go() -> None:
    @ray.remote(num_cpus=0)
    class Keeper:
        def __init__(self, value: object) -> None:
            pass

    def entries() -> int:
        return len(core_worker.current().objects.table.entries)

    keeper = Keeper.options(name="keeper", get_if_exists=True).remote(None)
    ray.get(keeper.__ray_ready__.remote())
    before = entries()
    for _ in range(5):
        again = Keeper.options(name="keeper", get_if_exists=True).remote(ray.put("value"))
        with pytest.raises(ValueError, match="keeper"):
            Keeper.options(name="keeper").remote(ray.put("value"))
        detached = Keeper.options(name="keeper", get_if_exists=True, lifetime="detached")
        detached.remote(ray.put("value"))
    assert again == keeper
    assert eventually(lambda: entries() <= before)
