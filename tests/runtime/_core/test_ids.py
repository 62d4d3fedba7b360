"""Identifiers: lengths, what an id says of others, and their text."""

from __future__ import annotations

import itertools
import pickle
import threading

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


# ---------------------------------------------------------------- what a process makes

JOB = b"job1"


def test_a_thousand_callers_of_one_actor_share_no_id() -> None:
    actor_id = ids.actor_id(JOB)
    callers = [ids.TaskIds(JOB) for _ in range(1000)]
    made = [caller.call(actor_id) for caller in callers for _ in range(100)]
    assert len(set(made)) == len(made)
    assert {ids.actor_id_of(task_id) for task_id in made} == {actor_id}


def test_a_thousand_processes_share_no_task_and_nothing_they_put() -> None:
    processes = [ids.TaskIds(JOB) for _ in range(1000)]
    tasks = [process.task() for process in processes for _ in range(100)]
    puts = [ids.task_id_of(process.put()) for process in processes for _ in range(100)]
    assert len({*tasks, *puts}) == len(tasks) + len(puts)


def test_tasks_calls_and_puts_cannot_meet_whatever_their_numbers() -> None:
    one, other = ids.TaskIds(JOB), ids.TaskIds(JOB)
    for process in (one, other):
        process._numbers = itertools.repeat(7)  # type: ignore[assignment]
    actor_id = ids.actor_id(JOB)
    made = {one.task(), other.task(), one.call(actor_id)}
    assert len(made) == 3
    assert not made & {ids.task_id_of(one.put()), ids.task_id_of(other.put())}


def test_an_id_tells_what_it_belongs_to() -> None:
    process, actor_id = ids.TaskIds(JOB), ids.actor_id(JOB)
    assert ids.is_actor(ids.actor_id_of(process.call(actor_id)))
    assert not ids.is_actor(ids.actor_id_of(process.task()))
    assert ids.is_put(process.put())
    assert not ids.is_put(ids.object_id(process.task(), 1))
    assert not ids.is_put(ids.object_id(process.call(actor_id), 1))
    for made in (process.task(), process.call(actor_id), ids.task_id_of(process.put())):
        assert ids.TaskID(made).job_id() == ids.JobID(JOB)


@given(st.binary(min_size=12, max_size=12))
def test_every_actor_id_is_told_from_a_task(random: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.urandom", lambda _size: random)
        assert ids.is_actor(ids.actor_id(JOB))


@pytest.mark.parametrize("edge", [2**16, 2**32, 2**48, 2**63])
def test_counting_never_ends(edge: int) -> None:
    process, actor_id = ids.TaskIds(JOB), ids.actor_id(JOB)
    process._numbers = itertools.count(edge - 2)
    made = [process.task() for _ in range(4)] + [process.call(actor_id) for _ in range(4)]
    puts = [process.put() for _ in range(4)]
    assert len({*made, *puts}) == 12
    assert {len(task_id) for task_id in made} == {ids.TASK_BYTES}
    assert {len(object_id) for object_id in puts} == {ids.OBJECT_BYTES}


@given(st.binary(min_size=11, max_size=11))
def test_a_process_may_begin_anywhere_and_never_makes_a_constructors_id(random: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.urandom", lambda size: random[:size])
        process = ids.TaskIds(JOB)
    for _ in range(3):
        assert process.call(b"a" * 16)[:8] < b"\x80" + bytes(7) < ids.CREATION_PREFIX


def test_threads_that_put_at_once_share_no_id() -> None:
    process = ids.TaskIds(JOB)
    made: list[list[bytes]] = [[] for _ in range(4)]

    def put(mine: list[bytes]) -> None:
        mine.extend(process.put() for _ in range(5000))

    threads = [threading.Thread(target=put, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({object_id for mine in made for object_id in mine}) == 20_000


def test_the_last_value_of_a_stream_and_its_end_have_ids() -> None:
    task_id = bytes(24)
    assert ids.object_id(task_id, ids.MAX_STREAM_ITEMS + 10) != ids.object_id(task_id, 1)
