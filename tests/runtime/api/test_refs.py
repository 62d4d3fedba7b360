"""References: identity, counting across processes, lifetimes, rebuilding."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
from typing import Any

import numpy as np
import pytest

from tests.polling import eventually
from tests.under_test import OWN, exceptions, ray

pytestmark = pytest.mark.usefixtures("session")

LARGE = 2**18


@ray.remote
def identity(value: Any) -> Any:
    return value


@ray.remote
def total(refs: list[Any]) -> int:
    return int(sum(ray.get(ref).sum() for ref in refs))


@ray.remote(num_cpus=0)
class Keeper:
    def keep(self, refs: list[Any]) -> None:
        self.refs = refs

    def read(self) -> int:
        return int(ray.get(self.refs[0]).sum())

    def make(self) -> list[Any]:
        return [ray.put(np.ones(LARGE))]

    def hand_on(self) -> list[Any]:
        return self.refs


def test_identity() -> None:
    one, other = ray.put(1), ray.put(1)
    assert one != other
    assert one == ray.get(ray.put([one]))[0]
    assert len({one, other, ray.get(ray.put([one]))[0]}) == 2


def test_what_a_reference_tells() -> None:
    ref = identity.remote(1)
    assert len(ref.binary()) == 28
    assert ref.hex() == ref.binary().hex()
    assert repr(ref) == f"ObjectRef({ref.hex()})"
    assert ref.task_id().hex() == ref.hex()[:48]
    assert ref.job_id().hex() == ray.get_runtime_context().get_job_id()
    assert not ref.is_nil()


def test_references_are_no_containers() -> None:
    with pytest.raises(TypeError):
        list(ray.put([1]))


def test_a_borrower_keeps_the_object() -> None:
    keeper = Keeper.remote()
    ref = ray.put(np.ones(LARGE))
    ray.get(keeper.keep.remote([ref]))
    del ref
    gc.collect()
    assert ray.get(keeper.read.remote()) == LARGE


def test_a_queued_task_keeps_its_arguments() -> None:
    from tests.gate import Gate

    @ray.remote
    def after(gate: Any, array: Any, nested: list[Any]) -> int:
        return int(array.sum() + ray.get(nested[0]).sum())

    gate = Gate.remote()
    array, nested = ray.put(np.ones(LARGE)), ray.put(np.ones(LARGE))
    ref = after.remote(gate.pass_through.remote(), array, [nested])
    del array, nested
    gc.collect()
    ray.get(gate.open.remote())
    assert ray.get(ref, timeout=60) == 2 * LARGE


def test_references_made_elsewhere_can_be_read_here() -> None:
    keeper = Keeper.remote()
    (ref,) = ray.get(keeper.make.remote())
    assert ray.get(ref).sum() == LARGE
    assert ray.get(total.remote([ref])) == LARGE


def test_a_reference_passed_through_three_processes() -> None:
    first, second = Keeper.remote(), Keeper.remote()
    ray.get(first.keep.remote([ray.put(np.ones(LARGE))]))
    ray.get(second.keep.remote(ray.get(first.hand_on.remote())))
    ray.get(first.keep.remote([]))
    gc.collect()
    assert ray.get(second.read.remote()) == LARGE


def test_the_object_goes_with_the_process_that_owned_it() -> None:
    keeper = Keeper.remote()
    (ref,) = ray.get(keeper.make.remote())
    ray.kill(keeper)
    with pytest.raises(exceptions.RayActorError):
        ray.get(keeper.read.remote(), timeout=60)

    def lost() -> bool:
        try:
            ray.get(ref, timeout=60)
        except exceptions.ObjectLostError:
            return True
        return False

    assert eventually(lost)


def test_nested_references_in_results_stay_alive() -> None:
    @ray.remote
    def nest() -> dict[str, list[Any]]:
        return {"refs": [ray.put(np.full(LARGE, i)) for i in range(3)]}

    nested = ray.get(nest.remote())
    gc.collect()
    assert [int(ray.get(ref)[0]) for ref in nested["refs"]] == [0, 1, 2]


def test_a_result_that_is_never_fetched_does_no_harm() -> None:
    for i in range(200):
        identity.remote(np.full(100, i))
    gc.collect()
    assert ray.get(identity.remote("fine")) == "fine"


def test_dropping_a_reference_to_running_work_does_not_cancel_it() -> None:
    keeper = Keeper.remote()

    @ray.remote
    def tell(keeper: Any) -> None:
        ray.get(keeper.keep.remote([ray.put(np.ones(LARGE))]))
        ray.get(keeper.read.remote())

    done = tell.remote(keeper)
    del done
    gc.collect()
    assert ray.get(identity.remote(3)) == 3


def test_futures() -> None:
    assert identity.remote(5).future().result(timeout=60) == 5


def test_a_future_of_a_failure() -> None:
    @ray.remote
    def fail() -> None:
        raise ValueError("future")

    with pytest.raises(ValueError, match="future"):
        fail.remote().future().result(timeout=60)


def test_many_references_in_one_value() -> None:
    refs = ray.get(ray.put([ray.put(i) for i in range(1000)]))
    assert ray.get(refs) == list(range(1000))


def test_thousands_of_references_come_and_go() -> None:
    for _ in range(5):
        refs = [identity.remote(i) for i in range(400)]
        assert sum(ray.get(refs)) == sum(range(400))
        del refs
        gc.collect()


@pytest.mark.skipif(not OWN, reason="the other engine lets references be pickled by anything")
def test_pickling_outside_of_the_engine_keeps_the_object() -> None:
    ref = ray.put("value")
    data = pickle.dumps(ref)
    assert ray.get(pickle.loads(data)) == "value"


def test_a_task_result_that_was_lost_with_its_worker_is_still_there() -> None:
    @ray.remote(max_retries=0)
    def make() -> Any:
        return np.ones(LARGE), os.getpid()

    array_ref, pid_ref = make.options(num_returns=2).remote()
    os.kill(ray.get(pid_ref), 9)
    assert ray.get(array_ref).sum() == LARGE


def test_references_from_ids() -> None:
    ref = ray.put(5)
    for same in (ray.ObjectRef(ref.binary()), ray.ObjectRef.from_binary(ref.binary())):
        assert same == ref
        assert ray.get(same) == 5
    assert ray.ObjectRef.from_hex(ref.hex()) == ref
    assert len(ray.ObjectRef.from_random().binary()) == ray.ObjectRef.size() == 28
    assert ray.ObjectRef.nil().is_nil()
    with pytest.raises(ValueError, match="owner is unknown"):
        ray.get(ray.ObjectRef.nil(), timeout=60)
    with pytest.raises(ValueError, match="ID string needs to have length 28, got 1"):
        ray.ObjectRef(b"x")
    with pytest.raises(TypeError, match="Unsupported type: <class 'str'>, expected bytes"):
        ray.ObjectRef("x" * 28)


def test_references_are_values() -> None:
    ref = ray.put(1)
    assert ref != 1
    assert {ref: 2}[ray.ObjectRef(ref.binary())] == 2
    assert bool(ref)
    assert ray.ObjectID is ray.ObjectRef
    assert ray.ObjectRef[int] is not None
    with pytest.raises(TypeError):
        _ = ref < ref
    with pytest.raises(AttributeError):
        ref.other = 1
    assert ref.tensor_transport() is None
    assert isinstance(ref.call_site(), str)
    assert isinstance(ref.owner_address(), bytes)
    assert ref.task_id().job_id() == ref.job_id()
    assert ref.task_id().actor_id().job_id == ref.job_id()


def test_copies_of_references() -> None:
    ref = ray.put([1])
    for copied in (copy.copy(ref), copy.deepcopy(ref)):
        assert copied == ref
        assert ray.get(copied) == [1]


def test_callbacks_of_references() -> None:
    told: list[Any] = []
    identity.remote(3)._on_completed(told.append)
    assert eventually(lambda: told == [3])


def test_asyncio_futures() -> None:
    async def read() -> list[Any]:
        ref = ray.put(4)
        future = ref.as_future()
        assert asyncio.isfuture(future)
        return [await future, await asyncio.wrap_future(ref.future()), await ref]

    assert asyncio.run(read()) == [4, 4, 4]


@pytest.mark.skipif(not OWN, reason="Ray reads the variable once, when it starts")
def test_pickling_outside_of_the_engine_can_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_allow_out_of_band_object_ref_serialization", "0")
    ref = ray.put(1)
    with pytest.raises(exceptions.OufOfBandObjectRefSerializationException, match="not allowed"):
        pickle.dumps(ref)
    assert ray.get(ray.get(identity.remote([ref]))) == [1]
