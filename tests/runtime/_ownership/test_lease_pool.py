"""How many workers an owner asks for, and how deep it pushes to each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._ownership import lease_pool
from runtime._ownership.lease_pool import (
    EXACT_EVERY_S,
    FEW_LEASES,
    IDLE_LEASE_S,
    MAX_DEPTH,
    QUEUE_AHEAD_S,
    STUCK_FACTOR,
    STUCK_MIN_S,
    WORK_PER_LEASE_S,
    Lease,
    LeasePool,
)

MANY = FEW_LEASES + 4


def pool_of(
    *, workers: int = 0, queued: int = 0, average_s: float | None = None, strict: bool = False
) -> LeasePool:
    pool = LeasePool(b"key", None, "", "f", strict)
    pool.average_s = average_s
    pool.queue.extend(range(queued))
    for number in range(workers):
        pool.add(Lease(number.to_bytes(2, "big"), f"worker {number}", pool, 0.0))
    return pool


def picked(pool: LeasePool) -> Lease | None:
    """Who would get a task."""
    lease = pool.take()
    if lease is not None:
        pool.changed(lease)
    return lease


def leases_of(pool: LeasePool) -> list[Lease]:
    return list(pool.leases)


def load(lease: Lease, tasks: int) -> Lease:
    lease.inflight = {number.to_bytes(2, "big"): None for number in range(tasks)}
    lease.pool.changed(lease)
    return lease


def steps_of(work: Callable[[], object]) -> int:
    """How many lines of the module run."""
    count = 0

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != lease_pool.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


# ---------------------------------------------------------------- depth


def test_one_task_at_a_time_until_the_time_of_one_is_known() -> None:
    assert pool_of().depth() == 1


@pytest.mark.parametrize(
    ("average_s", "depth"),
    [
        (1.0, 1),
        (QUEUE_AHEAD_S, 1),
        (0.005, 2),
        (0.001, 10),
        (0.0001, 100),
        (0.0, MAX_DEPTH),
        (1e-9, MAX_DEPTH),
    ],
)
def test_short_tasks_are_pushed_deep(average_s: float, depth: int) -> None:
    assert pool_of(average_s=average_s).depth() == depth


def test_a_strict_class_is_never_pushed_ahead() -> None:
    assert pool_of(average_s=0.0, strict=True).depth() == 1


@given(st.floats(min_value=0, max_value=1e6))
def test_the_depth_is_within_its_bounds(average_s: float) -> None:
    assert 1 <= pool_of(average_s=average_s).depth() <= MAX_DEPTH


def test_the_first_time_learned_is_taken_as_it_is() -> None:
    pool = pool_of()
    pool.learned(0.5)
    assert pool.average_s == 0.5


@given(st.lists(st.floats(min_value=0, max_value=10), min_size=1))
def test_the_average_stays_within_what_was_learned(times: list[float]) -> None:
    pool = pool_of()
    for seconds in times:
        pool.learned(seconds)
    assert pool.average_s is not None
    assert min(times) - 1e-9 <= pool.average_s <= max(times) + 1e-9


def test_the_average_follows_a_change() -> None:
    pool = pool_of()
    pool.learned(0.0)
    for _ in range(50):
        pool.learned(1.0)
    assert pool.average_s == pytest.approx(1.0, abs=0.001)


# ---------------------------------------------------------------- picking a worker


def test_nobody_to_pick_without_workers() -> None:
    assert picked(pool_of()) is None


def test_the_least_loaded_worker_is_picked() -> None:
    pool = pool_of(workers=3, average_s=0.0)
    for lease, tasks in zip(pool.leases, (4, 1, 2), strict=True):
        load(lease, tasks)
    assert picked(pool) is leases_of(pool)[1]


def test_a_full_worker_is_not_picked() -> None:
    pool = pool_of(workers=2)
    for lease in pool.leases:
        load(lease, 1)
    assert picked(pool) is None


def test_a_blocked_worker_is_not_picked() -> None:
    pool = pool_of(workers=1, average_s=0.0)
    [lease] = pool.leases
    lease.blocked = True
    pool.changed(lease)
    assert picked(pool) is None
    lease.blocked = False
    pool.changed(lease)
    assert picked(pool) is lease


def test_a_worker_that_leaves_or_is_gone_is_not_picked() -> None:
    pool = pool_of(workers=2, average_s=0.0)
    one, other = pool.leases
    one.leaving = True
    pool.changed(one)
    assert picked(pool) is other
    pool.remove(other)
    pool.remove(one)
    assert picked(pool) is None
    assert pool.fullest() is None


def test_of_workers_with_nothing_to_do_the_last_busy_one_is_picked() -> None:
    pool = pool_of(workers=MANY)
    last = load(leases_of(pool)[1], 1)
    assert picked(pool) is not last
    load(last, 0)
    assert [picked(pool) for _ in range(3)] == [last] * 3  # the others become idle, and go back


def end_one(lease: Lease) -> None:
    lease.inflight.popitem()


def test_a_worker_that_ends_a_task_gets_the_next_if_none_has_less_to_do() -> None:
    pool = pool_of(workers=MANY, average_s=QUEUE_AHEAD_S / 3.5)
    one, other, *others = pool.leases
    for lease in others:
        load(lease, 3)
    load(one, 3)
    load(other, 3)
    assert pool.take() is None
    end_one(one)
    assert pool.refills(one)
    load(one, 3)
    load(other, 1)
    end_one(one)
    assert not pool.refills(one)
    taken = [pool.take() for _ in range(4)]
    assert taken[0] is other
    assert (taken.count(one), taken.count(other), taken.count(None)) == (1, 2, 1)


@pytest.mark.parametrize("state", ["blocked", "leaving", "gone"])
def test_a_worker_that_takes_no_more_gets_no_next_task(state: str) -> None:
    pool = pool_of(workers=MANY, average_s=0.0)
    lease = load(leases_of(pool)[0], 3)
    if state == "gone":
        pool.remove(lease)
    else:
        setattr(lease, state, True)
        pool.changed(lease)
    end_one(lease)
    assert not pool.refills(lease)
    assert pool.take() not in (None, lease)


def test_a_full_worker_gets_no_next_task_when_tasks_have_become_longer() -> None:
    pool = pool_of(workers=1, average_s=0.0)
    lease = load(leases_of(pool)[0], 5)
    end_one(lease)
    pool.average_s = QUEUE_AHEAD_S
    assert not pool.refills(lease)
    assert pool.take() is None
    load(lease, 0)
    assert pool.take() is lease


def test_the_fullest_worker_is_found() -> None:
    pool = pool_of(workers=3, average_s=0.0)
    assert pool.fullest() in pool.leases
    for lease, tasks in zip(pool.leases, (1, 7, 2), strict=True):
        load(lease, tasks)
    fullest = leases_of(pool)[1]
    assert pool.fullest() is fullest
    load(fullest, 0)
    assert pool.fullest() is leases_of(pool)[2]


@given(st.integers(1, MANY), st.integers(0, 60), st.floats(min_value=0.0001, max_value=0.1))
def test_picking_until_full_levels_the_workers(workers: int, tasks: int, average_s: float) -> None:
    pool = pool_of(workers=workers, average_s=average_s)
    for _ in range(tasks):
        lease = picked(pool)
        if lease is None:
            break
        load(lease, len(lease.inflight) + 1)
    loads = [len(lease.inflight) for lease in pool.leases]
    assert max(loads) - min(loads) <= 1
    assert max(loads) <= pool.depth()
    assert sum(loads) == min(tasks, workers * pool.depth())


@given(st.data())
def test_whatever_happens_the_least_loaded_open_worker_is_picked(data: st.DataObject) -> None:
    pool = pool_of(workers=data.draw(st.sampled_from([4, MANY])), average_s=0.0)
    for _ in range(data.draw(st.integers(0, 40))):
        if not pool.leases:
            break
        lease = data.draw(st.sampled_from(leases_of(pool)))
        what = data.draw(st.sampled_from(["load", "next", "blocked", "leaving", "gone", "new", "look"]))
        if what == "load":
            load(lease, data.draw(st.integers(0, 12)))
        elif what == "next":
            if not lease.inflight:
                continue
            end_one(lease)
            others = [len(each.inflight) for each in pool.leases if each.listed >= 0 and each is not lease]
            if pool.refills(lease):
                assert len(lease.inflight) <= min(others, default=100)
                load(lease, len(lease.inflight) + 1)
        elif what == "gone":
            pool.remove(lease)
        elif what == "new":
            pool.add(Lease(b"new", "worker", pool, 0.0))
        elif what == "look":
            pool.fullest()
        else:
            setattr(lease, what, not getattr(lease, what))
            pool.changed(lease)
        loads = [len(each.inflight) for each in pool.leases if not (each.blocked or each.leaving)]
        least, fullest = picked(pool), pool.fullest()
        assert (None if least is None else len(least.inflight)) == min(loads, default=None)
        assert (None if fullest is None else len(fullest.inflight)) == max(loads, default=None)


def test_to_push_takes_as_many_steps_for_a_thousand_workers_as_for_ten() -> None:
    def push_and_end(pool: LeasePool) -> None:
        lease = picked(pool)
        assert lease is not None
        load(lease, len(lease.inflight) + 1)
        load(lease, len(lease.inflight) - 1)
        assert pool.fullest() is not None

    def steps_with(workers: int) -> int:
        pool = pool_of(workers=workers, average_s=0.001)
        for lease in pool.leases:
            load(lease, 4)
        push_and_end(pool)
        return steps_of(lambda: push_and_end(pool))

    assert steps_with(1000) == steps_with(10) < 100


def test_to_find_no_room_takes_few_steps() -> None:
    pool = pool_of(workers=1000)
    for lease in pool.leases:
        load(lease, 1)
    picked(pool)
    assert steps_of(pool.take) < 20


# ---------------------------------------------------------------- the queue


class Waiting:
    """A task that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Waiting.compared += 1
        return self is other

    __hash__ = object.__hash__


def queued(count: int) -> tuple[LeasePool, list[Any]]:
    pool, tasks = pool_of(), [Waiting() for _ in range(count)]
    pool.queue.extend(tasks)
    return pool, tasks


def test_a_cancelled_task_is_never_taken() -> None:
    pool, tasks = queued(5)
    for number in (0, 3, 1):
        pool.cancel(tasks[number])
    assert pool.wanted() == 2
    assert pool.take_all() == [tasks[2], tasks[4]]
    assert not pool.queue


def test_a_queue_of_cancelled_tasks_is_empty() -> None:
    pool, tasks = queued(5)
    for task in reversed(tasks):
        pool.cancel(task)
    assert not pool.queue
    assert pool.wanted() == 0
    assert pool.demand() is None


def test_a_task_that_was_cancelled_can_be_queued_again() -> None:
    pool, tasks = queued(5)
    pool.cancel(tasks[3])
    pool.queue.append(tasks[3])
    assert pool.wanted() == 5
    taken = pool.take_all()
    assert len(taken) == len(set(taken)) == 5
    assert pool.wanted() == 0


@given(st.integers(1, 40), st.data())
def test_what_is_taken_is_what_was_not_cancelled(count: int, data: st.DataObject) -> None:
    pool, tasks = queued(count)
    gone = data.draw(st.lists(st.sampled_from(tasks), unique_by=id))
    for task in gone:
        pool.cancel(task)
    assert pool.wanted() == count - len(gone)
    assert bool(pool.queue) == (len(gone) < count)
    assert pool.take_all() == [task for task in tasks if not any(task is each for each in gone)]


def test_to_cancel_everything_takes_a_few_steps_for_each() -> None:
    def cancel_all(count: int) -> int:
        pool, tasks = queued(count)
        return steps_of(lambda: [pool.cancel(task) for task in reversed(tasks)])

    Waiting.compared = 0
    assert cancel_all(2000) < 2000 * 40
    assert Waiting.compared < 2000 * 4


# ---------------------------------------------------------------- demand


def test_nothing_is_wanted_for_an_empty_queue() -> None:
    assert pool_of(average_s=1.0).wanted() == 0


def test_one_worker_per_task_until_the_time_of_one_is_known() -> None:
    assert pool_of(queued=7).wanted() == 7


def test_a_strict_class_wants_one_worker_per_task() -> None:
    assert pool_of(queued=7, average_s=0.0001, strict=True).wanted() == 7


def test_long_tasks_want_a_worker_each() -> None:
    assert pool_of(queued=7, average_s=WORK_PER_LEASE_S).wanted() == 7


def test_many_short_tasks_want_few_workers() -> None:
    assert pool_of(queued=100, average_s=WORK_PER_LEASE_S / 10).wanted() == 10


def test_a_queue_wants_at_least_one_worker() -> None:
    assert pool_of(queued=1, average_s=0.0).wanted() == 1


@given(st.integers(1, 1000), st.floats(min_value=0, max_value=100))
def test_never_more_workers_than_tasks(queued: int, average_s: float) -> None:
    assert 1 <= pool_of(queued=queued, average_s=average_s).wanted() <= queued


def test_a_demand_is_told_once() -> None:
    pool = pool_of(queued=4)
    assert pool.demand() == 4
    assert pool.demand() is None


@pytest.mark.parametrize("queued", [5, 7, 10, 14, 15])
def test_a_small_change_is_not_worth_a_message(queued: int) -> None:
    pool = pool_of(queued=queued)
    pool.asked = 10
    assert pool.demand() is None


@pytest.mark.parametrize("queued", [1, 4, 16, 100])
def test_a_large_change_is_told(queued: int) -> None:
    pool = pool_of(queued=queued)
    pool.asked = 10
    assert pool.demand() == queued


def test_what_is_near_enough_is_told_exactly_a_moment_later() -> None:
    pool = pool_of(queued=13)
    pool.asked = 10
    assert pool.demand() is None
    assert pool.exact_demand(100.0) == 13
    assert pool.exact_demand(200.0) is None
    pool.queue.append(object())
    assert pool.exact_demand(100.0 + EXACT_EVERY_S / 2) is None
    assert pool.exact_demand(100.0 + EXACT_EVERY_S) == 14


def test_an_emptied_queue_withdraws_its_demand_once() -> None:
    pool = pool_of()
    pool.asked = 1
    assert pool.demand() == 0
    assert pool.demand() is None


def test_the_first_task_asks_whatever_came_before() -> None:
    pool = pool_of(queued=1)
    assert pool.demand() == 1


@given(st.integers(0, 500), st.integers(0, 500))
def test_a_queue_with_tasks_never_ends_without_a_demand(asked: int, queued: int) -> None:
    pool = pool_of(queued=queued)
    pool.asked = asked
    pool.demand()
    assert bool(pool.asked) == bool(queued)


# ---------------------------------------------------------------- stuck and idle


def test_a_worker_with_one_task_hides_nothing() -> None:
    pool = pool_of(workers=1)
    load(leases_of(pool)[0], 1)
    assert pool.stuck(1e9) == []


def test_queued_tasks_behind_a_long_one_are_found() -> None:
    pool = pool_of(workers=2, average_s=0.0001)
    load(leases_of(pool)[0], 5)
    load(leases_of(pool)[1], 1)
    assert pool.stuck(STUCK_MIN_S) == []
    assert pool.stuck(STUCK_MIN_S * 1.01) == [leases_of(pool)[0]]


def test_what_is_usual_for_the_class_is_not_stuck() -> None:
    pool = pool_of(workers=1, average_s=1.0)
    load(leases_of(pool)[0], 2)
    assert pool.stuck(STUCK_FACTOR - 0.01) == []
    assert pool.stuck(STUCK_FACTOR + 0.01) == leases_of(pool)


def test_a_worker_is_asked_once_to_give_tasks_back() -> None:
    pool = pool_of(workers=1)
    load(leases_of(pool)[0], 2).taking_back = True
    assert pool.stuck(1e9) == []


def test_an_idle_worker_goes_back_after_a_while() -> None:
    pool = pool_of(workers=2)
    load(leases_of(pool)[1], 1)
    assert pool.idle(IDLE_LEASE_S * 0.99) == []
    assert pool.idle(IDLE_LEASE_S) == [leases_of(pool)[0]]


def test_no_worker_goes_back_while_tasks_wait() -> None:
    assert pool_of(workers=1, queued=1).idle(1e9) == []
