"""How many workers an owner asks for, and how deep it pushes to each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime._core.lease_pool import (
    EXACT_EVERY_S,
    IDLE_LEASE_S,
    MAX_DEPTH,
    QUEUE_AHEAD_S,
    STUCK_FACTOR,
    STUCK_MIN_S,
    WORK_PER_LEASE_S,
    Lease,
    LeasePool,
)


def pool_of(
    *, workers: int = 0, queued: int = 0, average_s: float | None = None, strict: bool = False
) -> LeasePool:
    pool = LeasePool(b"key", None, "", "f", strict)
    pool.average_s = average_s
    pool.queue.extend(range(queued))
    for number in range(workers):
        pool.leases.append(Lease(bytes([number]), f"worker {number}", pool, 0.0))
    return pool


def load(lease: Lease, tasks: int) -> Lease:
    lease.inflight = {bytes([number]): None for number in range(tasks)}
    return lease


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
    assert pool_of().pick() is None


def test_the_least_loaded_worker_is_picked() -> None:
    pool = pool_of(workers=3, average_s=0.0)
    for lease, tasks in zip(pool.leases, (4, 1, 2), strict=True):
        load(lease, tasks)
    assert pool.pick() is pool.leases[1]


def test_a_full_worker_is_not_picked() -> None:
    pool = pool_of(workers=2)
    for lease in pool.leases:
        load(lease, 1)
    assert pool.pick() is None


def test_a_blocked_worker_is_not_picked() -> None:
    pool = pool_of(workers=1, average_s=0.0)
    pool.leases[0].blocked = True
    assert pool.pick() is None


@given(st.integers(1, 5), st.integers(0, 30), st.floats(min_value=0.0001, max_value=0.1))
def test_picking_until_full_levels_the_workers(workers: int, tasks: int, average_s: float) -> None:
    pool = pool_of(workers=workers, average_s=average_s)
    for number in range(tasks):
        lease = pool.pick()
        if lease is None:
            break
        lease.inflight[number.to_bytes(2, "big")] = None
    loads = [len(lease.inflight) for lease in pool.leases]
    assert max(loads) - min(loads) <= 1
    assert max(loads) <= pool.depth()
    assert sum(loads) == min(tasks, workers * pool.depth())


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
    load(pool.leases[0], 1)
    assert pool.stuck(1e9) == []


def test_queued_tasks_behind_a_long_one_are_found() -> None:
    pool = pool_of(workers=2, average_s=0.0001)
    load(pool.leases[0], 5)
    load(pool.leases[1], 1)
    assert pool.stuck(STUCK_MIN_S) == []
    assert pool.stuck(STUCK_MIN_S * 1.01) == [pool.leases[0]]


def test_what_is_usual_for_the_class_is_not_stuck() -> None:
    pool = pool_of(workers=1, average_s=1.0)
    load(pool.leases[0], 2)
    assert pool.stuck(STUCK_FACTOR - 0.01) == []
    assert pool.stuck(STUCK_FACTOR + 0.01) == pool.leases


def test_a_worker_is_asked_once_to_give_tasks_back() -> None:
    pool = pool_of(workers=1)
    load(pool.leases[0], 2).taking_back = True
    assert pool.stuck(1e9) == []


def test_an_idle_worker_goes_back_after_a_while() -> None:
    pool = pool_of(workers=2)
    load(pool.leases[1], 1)
    assert pool.idle(IDLE_LEASE_S * 0.99) == []
    assert pool.idle(IDLE_LEASE_S) == [pool.leases[0]]


def test_no_worker_goes_back_while_tasks_wait() -> None:
    assert pool_of(workers=1, queued=1).idle(1e9) == []
