"""Who owns an object decides how long it lives: owner death, putting for another owner, freeing by hand, locations."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.polling import eventually
from tests.processes import is_alive
from tests.stalls import suspend
from tests.under_test import NAME, OWN, exceptions, ray

pytestmark = pytest.mark.usefixtures("session")
BIG = 2**20

own = pytest.mark.skipif(not OWN, reason="Ray 2.56 took it away")


@ray.remote(num_cpus=0)
class Owner:
    def put(self) -> list[Any]:
        return [ray.put(np.ones(BIG)), ray.put("small"), ray.put([ray.put("inner")])]

    def submit(self) -> list[Any]:
        return [never.remote()]

    def kept(self, refs: list[Any]) -> None:
        self.refs = refs

    def ping(self) -> str:
        return "pong"

    def pid(self) -> int:
        return os.getpid()

    def put_for(self, value: Any, owner: Any) -> list[Any]:
        return [ray.put(value, _owner=owner)]


@ray.remote(num_cpus=0)
def never() -> None:
    time.sleep(1000)


@ray.remote(num_cpus=0)
def read(refs: list[Any]) -> Any:
    return ray.get(refs[0])


@ray.remote(num_cpus=0)
def identity(value: Any) -> Any:
    return value


def is_lost(ref: Any) -> bool:
    try:
        ray.get(ref, timeout=60)
    except exceptions.OwnerDiedError:
        return True
    return False


def dead(refs: list[Any]) -> None:
    for ref in refs:
        assert eventually(lambda ref=ref: is_lost(ref))  # what was read before stays until the death is known
        with pytest.raises(exceptions.OwnerDiedError) as caught:
            ray.get(ref, timeout=60)
        assert caught.value.object_ref_hex == ref.hex()


# ---------------------------------------------------------------- the death of an owner


def test_what_a_dead_actor_owned_is_gone_even_if_it_was_read_before() -> None:
    owner = Owner.remote()
    refs = ray.get(owner.put.remote())
    assert ray.get(refs[1]) == "small"
    assert ray.get(ray.get(refs[2])[0]) == "inner"
    assert len(ray.get(refs[0])) == BIG
    ray.kill(owner)
    dead(refs)


def test_who_waits_for_it_is_told() -> None:
    owner = Owner.remote()
    (ref,) = ray.get(owner.submit.remote())
    errors: list[BaseException] = []

    def wait_for() -> None:
        try:
            ray.get(ref)
        except exceptions.OwnerDiedError as error:
            errors.append(error)

    thread = threading.Thread(target=wait_for)
    thread.start()
    assert ray.wait([ref], timeout=0.2) == ([], [ref])
    ray.kill(owner)
    assert ray.wait([ref], timeout=60) == ([ref], [])
    thread.join(60)
    assert len(errors) == 1


def test_a_task_that_waits_for_it_fails() -> None:
    owner = Owner.remote()
    (ref,) = ray.get(owner.submit.remote())
    results = [identity.remote(ref), read.remote([ref])]
    ray.kill(owner)
    for result in results:
        with pytest.raises(exceptions.RayTaskError) as caught:
            ray.get(result, timeout=60)
        assert isinstance(caught.value, exceptions.OwnerDiedError)


def test_arrays_that_were_read_stay() -> None:
    owner = Owner.remote()
    array = ray.get(ray.get(owner.put.remote())[0])
    ray.kill(owner)
    assert float(array.sum()) == BIG


def test_an_idle_worker_lives_while_others_need_what_it_owns() -> None:
    @ray.remote(num_cpus=0)
    def make(number: int, owns: bool) -> Any:
        time.sleep(0.2)
        return [os.getpid(), ray.put(number) if owns else None]

    # More workers of either kind than are kept when idle.
    made = ray.get([make.remote(number, number % 2 == 0) for number in range(16)])
    owners = {pid for pid, ref in made if ref is not None}
    others = {pid for pid, ref in made if ref is None} - owners
    assert eventually(lambda: not others or not all(map(is_alive, others)))
    refs = [ref for _, ref in made if ref is not None]
    assert ray.get(refs, timeout=60) == list(range(0, 16, 2))


# ---------------------------------------------------------------- put(_owner=)


@own
@pytest.mark.parametrize("value", [7, np.ones(BIG)], ids=["small", "large"])
def test_the_object_outlives_who_put_it(value: Any) -> None:
    owner, putter = Owner.remote(), Owner.remote()
    (ref,) = ray.get(putter.put_for.remote(value, owner))
    ray.kill(putter)
    with pytest.raises(exceptions.RayActorError):
        ray.get(putter.ping.remote(), timeout=60)
    assert np.array_equal(ray.get(ref, timeout=60), value)
    assert np.array_equal(ray.get(read.remote([ref]), timeout=60), value)


@own
def test_who_sent_a_reference_is_killed_when_its_owner_knows_who_has_it() -> None:
    owner, putter = Owner.remote(), Owner.remote()
    pid = ray.get(owner.pid.remote())
    result = putter.put_for.remote(7, owner)
    ray.wait([result])
    suspend(pid)
    goes_on = threading.Timer(0.5, os.kill, (pid, signal.SIGCONT))
    goes_on.start()
    try:
        (ref,) = ray.get(result)
        ray.kill(putter)
        assert goes_on.finished.is_set()  # before that the owner could not know
    finally:
        goes_on.join()
    assert ray.get(ref, timeout=60) == 7


@own
@pytest.mark.parametrize("value", [7, np.ones(BIG)], ids=["small", "large"])
def test_the_object_goes_with_its_owner(value: Any) -> None:
    owner = Owner.remote()
    ref = ray.put(value, _owner=owner)
    assert np.array_equal(ray.get(ref), value)
    ray.kill(owner)
    dead([ref])


@own
def test_references_inside_live_on_with_the_owner() -> None:
    owner = Owner.remote()
    outer = ray.put([ray.put("inner"), owner], _owner=owner)
    inner, handle = ray.get(outer)
    del outer
    assert ray.get(inner) == "inner"
    assert ray.get(handle.ping.remote()) == "pong"


@own
def test_an_actor_may_put_for_itself() -> None:
    owner = Owner.remote()
    (ref,) = ray.get(owner.put_for.remote("mine", owner))
    assert ray.get(ref) == "mine"
    ray.kill(owner)
    dead([ref])


@own
def test_dropping_it_frees_it() -> None:
    gc.collect()  # the tracebacks that earlier tests have caught
    owner = Owner.remote()
    store = f"{NAME}._private.internal_api"
    ref = ray.put(np.ones(4 * BIG), _owner=owner)
    summary = importlib.import_module(store).memory_summary
    assert "Plasma memory usage 0 MiB" not in summary(stats_only=True)
    del ref
    assert eventually(lambda: "Plasma memory usage 0 MiB" in summary(stats_only=True))


@own
def test_a_dead_owner_is_refused() -> None:
    owner = Owner.remote()
    ray.get(owner.ping.remote())
    ray.kill(owner)
    with pytest.raises(exceptions.RayActorError):
        ray.get(owner.ping.remote(), timeout=60)
    with pytest.raises(exceptions.RayActorError):
        ray.put(1, _owner=owner)


def test_an_owner_is_an_actor() -> None:
    with pytest.raises(ValueError, match="_owner"):
        ray.put(1, _owner="somebody")


# ---------------------------------------------------------------- free


def free(*args: Any, **kwargs: Any) -> None:
    importlib.import_module("runtime._private.internal_api").free(*args, **kwargs)


@own
@pytest.mark.parametrize("value", [7, np.ones(BIG)], ids=["small", "large"])
def test_a_freed_value_cannot_be_read(value: Any) -> None:
    refs = [ray.put(value), identity.remote(value)]
    ray.wait(refs, num_returns=2)
    for ref in refs:
        free([ref])
        with pytest.raises(exceptions.ObjectFreedError):
            ray.get(ref, timeout=60)
        assert ray.wait([ref], timeout=60) == ([ref], [])
        with pytest.raises(exceptions.RayTaskError):
            ray.get(read.remote([ref]), timeout=60)


@own
def test_what_somebody_else_owns_can_be_freed() -> None:
    owner = Owner.remote()
    refs = ray.get(owner.put.remote())[:2]
    free(refs)
    for ref in refs:
        with pytest.raises(exceptions.ObjectFreedError):
            ray.get(ref, timeout=60)
        with pytest.raises(exceptions.RayTaskError) as caught:
            ray.get(read.remote([ref]), timeout=60)
        assert isinstance(caught.value, exceptions.ObjectFreedError)


@own
def test_a_value_to_come_is_freed_when_it_comes() -> None:
    @ray.remote(num_cpus=0)
    def slow() -> Any:
        time.sleep(0.2)
        return np.ones(BIG)

    ref = slow.remote()
    free(ref)
    with pytest.raises(exceptions.ObjectFreedError):
        ray.get(ref, timeout=60)


@own
def test_only_references_are_freed() -> None:
    free([])
    with pytest.raises(TypeError, match="references"):
        free([1])


@own
def test_the_memory_of_all_stores_in_words() -> None:
    summary = importlib.import_module("runtime._private.internal_api").memory_summary
    assert eventually(lambda: "Plasma memory usage 0 MiB, 0 objects" in summary(stats_only=True))
    ref = ray.put(np.zeros(10 * BIG, dtype=np.uint8))
    assert "Plasma memory usage 10 MiB, 1 objects" in summary(stats_only=True)
    lines = [line for line in summary(units="MB").splitlines() if ref.hex() in line]
    assert len(lines) == 1
    assert "LOCAL_REFERENCE" in lines[0]


# ---------------------------------------------------------------- locations


def experimental() -> Any:
    return importlib.import_module(f"{NAME}.experimental")


def test_where_a_large_object_is() -> None:
    ref = ray.put(np.ones(BIG))
    here = ray.get_runtime_context().get_node_id()
    found = experimental().get_object_locations([ref])
    assert list(found) == [ref]
    assert found[ref]["node_ids"] == [here]
    assert found[ref]["object_size"] > 8 * BIG
    assert found[ref]["did_spill"] is False
    assert experimental().get_local_object_locations([ref]) == found


def test_where_a_small_result_and_one_to_come_are() -> None:
    small, pending = identity.remote(1), never.remote()
    ray.get(small)
    found = experimental().get_object_locations([small, pending])
    assert found[small]["node_ids"] == []
    assert found[pending] == {"node_ids": [], "object_size": None, "did_spill": False}
    assert experimental().get_object_locations([]) == {}
    ray.cancel(pending)


def test_where_an_object_of_somebody_else_is() -> None:
    owner = Owner.remote()
    refs = ray.get(owner.put.remote())[:2]
    here = ray.get_runtime_context().get_node_id()
    found = experimental().get_object_locations(refs)
    assert [found[ref]["node_ids"] for ref in refs] == [[here], [here]]
    ray.kill(owner)
    dead(refs)
    assert eventually(lambda: experimental().get_object_locations(refs) == {})


# ---------------------------------------------------------------- closures


def current_entries() -> Any:
    core = importlib.import_module(f"{NAME}._process.core_worker").current()
    return [entry for entry in core.objects.table.entries.values() if entry.holds]


@own
def test_what_a_function_refers_to_goes_with_the_function() -> None:
    summary = importlib.import_module(f"{NAME}._private.internal_api").memory_summary
    ref = ray.put(np.ones(4 * BIG))

    def make(ref: Any) -> Any:
        return ray.remote(lambda: len(ray.get(ref)))

    function = make(ref)
    assert ray.get(function.remote()) == 4 * BIG
    del ref
    assert ray.get(function.remote()) == 4 * BIG
    assert "Plasma memory usage 0 MiB" not in summary(stats_only=True)
    held = len(current_entries())
    del function
    assert eventually(lambda: len(current_entries()) < held or "usage 0 MiB" in summary(stats_only=True))


@own
def test_what_a_class_refers_to_goes_with_the_class_and_its_actors() -> None:
    def make(ref: Any) -> Any:
        @ray.remote(num_cpus=0, max_restarts=1, max_task_retries=1)
        class Reader:
            def read(self) -> int:
                return len(ray.get(ref))

        return Reader

    ref = ray.put(np.ones(4 * BIG))
    entry = ref._entry
    reader = make(ref)
    actor = reader.remote()
    del ref
    assert ray.get(actor.read.remote(), timeout=30) == 4 * BIG
    del reader
    gc.collect()
    ray.kill(actor, no_restart=False)
    assert ray.get(actor.read.remote(), timeout=30) == 4 * BIG
    assert entry.holds
    del actor
    assert eventually(lambda: not entry.holds)


def test_what_a_task_has_put_does_not_go_with_an_actor() -> None:
    @ray.remote
    def boxed() -> list[Any]:
        return [ray.put("kept")]

    @ray.remote
    class Actor:
        def ready(self) -> bool:
            return True

    boxes = ray.get([boxed.remote() for _ in range(4)], timeout=30)
    actors = [Actor.remote() for _ in range(4)]
    assert all(ray.get([actor.ready.remote() for actor in actors], timeout=30))
    for actor in actors:
        ray.kill(actor)
    for box in boxes:
        assert ray.get(box, timeout=60) == ["kept"]
