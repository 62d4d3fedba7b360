"""Identifiers: lengths, what an id says of others, and their text."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._core import ids

KINDS = [
    (ids.UniqueID, 28),
    (ids.NodeID, 28),
    (ids.WorkerID, 28),
    (ids.FunctionID, 28),
    (ids.ActorClassID, 28),
    (ids.ClusterID, 28),
    (ids.JobID, 4),
    (ids.ActorID, 16),
    (ids.TaskID, 24),
    (ids.PlacementGroupID, 18),
]
kinds = pytest.mark.parametrize(("kind", "size"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])


@kinds
def test_sizes(kind: type[ids.BaseID], size: int) -> None:
    assert kind.size() == size
    assert len(kind.from_random().binary()) == size


@kinds
def test_hex_and_back(kind: type[ids.BaseID], size: int) -> None:
    some = kind.from_random()
    assert kind.from_hex(some.hex()) == some
    assert len(some.hex()) == 2 * size
    assert some.hex() in repr(some)


@kinds
def test_nil(kind: type[ids.BaseID], size: int) -> None:
    assert kind.nil().is_nil()
    assert kind.nil() == kind.from_binary(b"\xff" * size)
    assert not kind(bytes(size)).is_nil()


@kinds
def test_pickles(kind: type[ids.BaseID], size: int) -> None:
    some = kind.from_random()
    copy = pickle.loads(pickle.dumps(some))
    assert copy == some
    assert type(copy) is kind
    assert hash(copy) == hash(some)


@kinds
@pytest.mark.parametrize("wrong", [b"", b"x" * 100])
def test_wrong_lengths_are_refused(kind: type[ids.BaseID], size: int, wrong: bytes) -> None:
    with pytest.raises(ValueError, match=f"ID string needs to have length {size}, got {len(wrong)}"):
        kind(wrong)


@kinds
@pytest.mark.parametrize("wrong", ["text", None, 7, bytearray(28)])
def test_wrong_types_are_refused(kind: type[ids.BaseID], size: int, wrong: object) -> None:
    with pytest.raises(TypeError, match=r"Unsupported type: .*, expected bytes"):
        kind(wrong)  # type: ignore[arg-type]


def test_ids_of_different_kinds_differ() -> None:
    binary = b"n" * 28
    assert ids.NodeID(binary) != ids.WorkerID(binary)
    assert ids.NodeID(binary) != binary


def test_ids_order_nothing_but_hash_well() -> None:
    assert len({ids.TaskID.from_random() for _ in range(1000)}) == 1000


@given(st.integers(0, 2**32 - 1))
def test_jobs_are_numbered(number: int) -> None:
    assert ids.JobID.from_int(number).int() == number


@given(st.binary(min_size=4, max_size=4))
def test_an_actor_names_its_job(job_id: bytes) -> None:
    actor_id = ids.actor_id(job_id)
    assert len(actor_id) == ids.ACTOR_BYTES
    assert ids.ActorID(actor_id).job_id == ids.JobID(job_id)


@given(st.binary(min_size=4, max_size=4))
def test_a_placement_group_names_its_job(job_id: bytes) -> None:
    group_id = ids.placement_group_id(job_id)
    assert len(group_id) == ids.PLACEMENT_GROUP_BYTES
    assert group_id.endswith(job_id)


@given(st.binary(min_size=24, max_size=24), st.integers(1, 2**32 - 1))
def test_an_object_names_its_task(task_id: bytes, index: int) -> None:
    object_id = ids.object_id(task_id, index)
    assert len(object_id) == ids.OBJECT_BYTES
    assert ids.task_id_of(object_id) == task_id


def test_the_returns_of_a_task_are_different_objects() -> None:
    task_id = bytes(24)
    assert len({ids.object_id(task_id, index) for index in range(1, 300)}) == 299


def test_a_task_names_its_actor_and_its_job() -> None:
    actor_id = ids.actor_id(b"job1")
    task = ids.TaskID(b"12345678" + actor_id)
    assert task.actor_id() == ids.ActorID(actor_id)
    assert task.job_id() == ids.JobID(b"job1")
