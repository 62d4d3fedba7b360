"""The table of worker processes."""

from __future__ import annotations

import pytest

from runtime._core.fsm import InvalidTransition, reachable_states, terminal_states
from runtime._core.workers import (
    TRANSITIONS,
    Worker,
    WorkerEvent,
    WorkerState,
    WorkerTable,
)

KEY = (b"job1", "")
OTHER = (b"job2", "")


def idle_worker(table: WorkerTable, name: bytes, now: float = 0.0, key: tuple[bytes, str] = KEY) -> Worker:
    worker = table.add(name, key)
    table.registered(worker, now)
    return worker


def test_every_state_is_reachable_and_dead_is_the_end() -> None:
    assert reachable_states(WorkerState.STARTING, TRANSITIONS) == set(WorkerState)
    assert terminal_states(WorkerState, TRANSITIONS) == {WorkerState.DEAD}


def test_a_worker_is_found_by_its_token() -> None:
    table = WorkerTable()
    worker = table.add(b"w", KEY)
    assert table.by_token(worker.token) is worker
    assert table.by_token(worker.token + 1) is None


def test_an_idle_worker_is_taken_once() -> None:
    table = WorkerTable()
    worker = idle_worker(table, b"w")
    assert table.take(KEY, WorkerEvent.LEASE, 0) is worker
    assert worker.state is WorkerState.LEASED
    assert table.take(KEY, WorkerEvent.LEASE, 0) is None


def test_a_worker_serves_its_own_job_only() -> None:
    table = WorkerTable()
    idle_worker(table, b"w")
    assert table.take(OTHER, WorkerEvent.LEASE, 0) is None


def test_the_warmest_worker_is_taken_first() -> None:
    table = WorkerTable()
    idle_worker(table, b"1")
    warm = idle_worker(table, b"2")
    assert table.take(KEY, WorkerEvent.LEASE, 0) is warm


def test_an_actor_gets_a_worker_that_was_never_used() -> None:
    table = WorkerTable()
    fresh = idle_worker(table, b"1")
    used = idle_worker(table, b"2")
    assert table.take(KEY, WorkerEvent.LEASE, 0) is used
    table.give_back(used, 0)
    assert table.take(KEY, WorkerEvent.BECOME_ACTOR, 0) is fresh
    assert table.take(KEY, WorkerEvent.BECOME_ACTOR, 0) is None
    assert table.take(KEY, WorkerEvent.LEASE, 0) is used


def test_a_returned_worker_is_idle_again() -> None:
    table = WorkerTable()
    worker = idle_worker(table, b"w")
    table.take(KEY, WorkerEvent.LEASE, 0)
    table.give_back(worker, 5)
    assert worker.state is WorkerState.IDLE
    assert worker.idle_since == 5


def test_an_actor_is_not_given_back() -> None:
    table = WorkerTable()
    worker = idle_worker(table, b"w")
    table.take(KEY, WorkerEvent.BECOME_ACTOR, 0)
    with pytest.raises(InvalidTransition):
        table.give_back(worker, 0)


def test_a_stopping_worker_is_not_taken() -> None:
    table = WorkerTable()
    worker = idle_worker(table, b"w")
    assert table.stopping(worker, "why", True, 0)
    assert table.take(KEY, WorkerEvent.LEASE, 0) is None
    assert not table.stopping(worker, "again", False, 0)
    assert worker.stop_reason == "why"


def test_a_dead_worker_is_forgotten() -> None:
    table = WorkerTable()
    worker = idle_worker(table, b"w")
    table.died(worker, 0)
    assert len(table) == 0
    assert table.by_token(worker.token) is None
    assert table.take(KEY, WorkerEvent.LEASE, 0) is None


def test_starting_workers_are_counted_by_key() -> None:
    table = WorkerTable()
    workers = [table.add(bytes([n]), KEY) for n in range(3)]
    assert (table.starting(KEY), table.starting(OTHER)) == (3, 0)
    table.registered(workers[0], 0)
    table.died(workers[1], 0)
    table.stopping(workers[2], "", True, 0)
    assert table.starting(KEY) == 0


def test_surplus_are_the_longest_idle_above_the_number_to_keep() -> None:
    table = WorkerTable()
    workers = [idle_worker(table, bytes([n]), now=n) for n in range(4)]
    assert table.surplus(keep=2, idle_s=1, now=10) == workers[:2]


def test_leased_workers_count_when_idle_ones_are_a_surplus() -> None:
    table = WorkerTable()
    for name in (b"leased", b"actor"):
        idle_worker(table, name)
    table.take(KEY, WorkerEvent.LEASE, 0)
    table.take(KEY, WorkerEvent.BECOME_ACTOR, 0)
    idle = [idle_worker(table, bytes([n]), now=n) for n in range(2)]
    assert table.surplus(keep=3, idle_s=1, now=10) == []
    assert not table.changes_with_time(keep=3)
    assert table.surplus(keep=2, idle_s=1, now=10) == idle[:1]
    assert table.changes_with_time(keep=2)
    assert table.surplus(keep=0, idle_s=1, now=10) == idle


def test_leased_workers_alone_are_no_surplus() -> None:
    table = WorkerTable()
    idle_worker(table, b"1")
    table.take(KEY, WorkerEvent.LEASE, 0)
    assert table.surplus(keep=0, idle_s=1, now=10) == []
    assert not table.changes_with_time(keep=0)


def test_a_worker_that_just_became_idle_is_no_surplus() -> None:
    table = WorkerTable()
    idle_worker(table, b"w", now=9.5)
    assert table.surplus(keep=0, idle_s=1, now=10) == []


def test_workers_of_other_environments_than_their_jobs_become_stale() -> None:
    table = WorkerTable()
    own = idle_worker(table, b"1", key=(b"job", '{"env_vars": {}}'), now=1)
    idle_worker(table, b"2", key=(b"job", ""), now=1)
    assert table.stale(idle_s=5, now=5) == []
    assert table.stale(idle_s=5, now=6) == [own]


def test_workers_of_a_job_are_listed() -> None:
    table = WorkerTable()
    worker = idle_worker(table, b"1")
    idle_worker(table, b"2", key=OTHER)
    assert table.of_job(b"job1") == [worker]


def test_counts() -> None:
    table = WorkerTable()
    table.add(b"s", KEY)
    idle_worker(table, b"i")
    idle_worker(table, b"b")
    table.take(KEY, WorkerEvent.LEASE, 0)
    counts = table.counts()
    assert (counts.starting, counts.idle, counts.busy) == (1, 1, 1)


def test_a_lease_gets_a_worker_that_has_seen_the_same_accelerators() -> None:
    table = WorkerTable()
    for number, devices in enumerate(((), ("GPU",))):
        worker = table.add(bytes([number]) * 28, KEY)
        table.registered(worker, 0)
        assert table.take(KEY, WorkerEvent.LEASE, 0, devices) is worker
        table.give_back(worker, 0)
        assert table.take(KEY, WorkerEvent.LEASE, 0, ("TPU",)) is None
    on_gpu = table.take(KEY, WorkerEvent.LEASE, 0, ("GPU",))
    assert on_gpu is not None
    assert on_gpu.worker_id[0] == 1
    on_cpu = table.take(KEY, WorkerEvent.LEASE, 0)
    assert on_cpu is not None
    assert on_cpu.worker_id[0] == 0
