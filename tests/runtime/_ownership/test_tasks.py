"""Tasks of one owner: pushed to leased workers, given back, retried, cancelled; each case by itself."""

from __future__ import annotations

from typing import Any

import pytest

from runtime._core.tasks import TaskState
from runtime._ownership.failures import (
    ArgumentFailed,
    Cancelled,
    CannotSend,
    EnvironmentFailed,
    GroupRemoved,
    NodeDied,
    OutOfMemory,
    Unschedulable,
    WorkerCrashed,
)
from runtime._ownership.records import INLINE_ERROR, STORED
from runtime._ownership.tasks import REASON_WAIT_S, RESTING_POOLS, Task, TaskOptions
from runtime._wire.messages.base import ErrorKind, Ok, ResourceRequest, SchedulingStrategy
from runtime._wire.messages.node import (
    GiveIdleBack,
    LeaseDemand,
    LeaseFailed,
    LeaseLost,
    LeaseRecall,
    LeaseReturn,
)
from runtime._wire.messages.worker import (
    BindLease,
    Borrowed,
    Cancel,
    DefineFunction,
    InlineArguments,
    ObjectLost,
    Push,
    ReleaseHold,
    Returned,
    TakeBack,
    Value,
)
from tests.runtime._ownership.fakes import PLAIN, WorkerLink, address_of, object_name
from tests.runtime._ownership.submitting import RESULT, Owner

ERROR = Value(INLINE_ERROR, b"raised")


@pytest.fixture
def owner() -> Owner:
    return Owner()


def pushed(link: WorkerLink) -> list[Push]:
    found: list[Push] = link.take(Push)
    return found


def lease_of(task: Task) -> bytes:
    assert task.lease is not None
    return task.lease.lease_id


def run_many(owner: Owner, count: int, retries: int = 1) -> tuple[list[Task], WorkerLink]:
    """Tasks that are known to be short, pushed to one worker."""
    first = owner.submit(retries=retries)
    link = owner.grant("w", first)
    [push] = pushed(link)
    owner.done(link, push, seconds=1e-4)
    tasks = [owner.submit(retries=retries) for _ in range(count)]
    return tasks, link


def test_a_task_asks_for_a_worker_goes_there_and_gives_its_result(owner: Owner) -> None:
    task = owner.submit()
    [demand] = owner.agent.take(LeaseDemand)
    assert (demand.class_key, demand.count, demand.name) == (task.pool.key, 1, "module.f")
    link = owner.grant("w", task)
    assert [type(message) for message in link.sent] == [BindLease, DefineFunction, Push]
    assert task.state is TaskState.PUSHED
    [push] = pushed(link)
    owner.done(link, push)
    assert task.entries[0].value == RESULT
    assert task.worker == link.peer
    assert owner.outcomes.pending == {}
    assert owner.process.attempts == [(task.push.task_id, 0, False)]
    owner.drop(task)
    assert owner.entries == {}


def test_a_function_is_defined_once_per_worker(owner: Owner) -> None:
    tasks, link = run_many(owner, 3)
    assert len(link.take(DefineFunction)) == 1
    assert len(pushed(link)) == len(tasks)  # short ones go ahead of need


def test_an_idle_worker_goes_back(owner: Owner) -> None:
    _, link = run_many(owner, 0)
    assert owner.tasks.tick(owner.now)
    owner.now += 1
    owner.tasks.tick(owner.now)
    assert len(owner.agent.take(LeaseReturn)) == 1
    assert not owner.tasks.tick(owner.now)
    assert owner.tasks.leases == {}
    assert not link.closed


def test_a_worker_that_nobody_needs_any_more_goes_back_at_once(owner: Owner) -> None:
    task = owner.submit()
    link = owner.grant("w", task)
    owner.done(link, pushed(link)[0])
    owner.grant("late", task)
    assert [message.discard for message in owner.agent.take(LeaseReturn)] == [False]


def test_a_worker_that_cannot_be_reached_is_discarded(owner: Owner) -> None:
    task = owner.submit()
    owner.process.workers[address_of("gone").worker_id] = None  # type: ignore[assignment]
    owner.agent.take(LeaseDemand)
    owner.grant("gone", task)
    assert [message.discard for message in owner.agent.take(LeaseReturn)] == [True]
    assert len(owner.agent.take(LeaseDemand)) == 1
    assert task.state is TaskState.QUEUED


# ---------------------------------------------------------------- arguments


def test_a_task_waits_for_its_arguments(owner: Owner) -> None:
    first = owner.submit()
    second = owner.submit(first.entries[0])
    link = owner.grant("w", first)
    assert second.state is TaskState.WAITING_FOR_ARGUMENTS
    owner.drop(first)
    assert first.entries[0].object_id in owner.entries  # held for the second
    owner.done(link, pushed(link)[0])
    [push] = pushed(link)
    assert push.inline == InlineArguments([0], [RESULT.data])
    owner.done(link, push)
    owner.drop(second)
    assert owner.entries == {}


def test_the_error_of_an_argument_is_the_tasks(owner: Owner) -> None:
    bad = owner.objects.own(object_name("bad"), 1)
    bad.value = ERROR
    task = owner.submit(bad)
    assert owner.failures() == [ArgumentFailed(ERROR.data, "f")]
    assert task.state is TaskState.FINISHED
    assert bad.seen
    assert owner.outcomes.pending == {}


def test_tasks_with_arguments_elsewhere_want_workers_there(owner: Owner) -> None:
    far = owner.objects.own(object_name("far"), 1)
    far.value = Value(STORED, b"", (), (), (b"f" * 28,), 1000)
    here = owner.submit()
    near = owner.submit(far)
    assert near.pool is not here.pool
    demands = owner.agent.take(LeaseDemand)
    assert demands[-1].locality == {b"f" * 28: 1000}


def test_idle_workers_of_a_node_go_back_when_others_want_to_run_there(owner: Owner) -> None:
    idle, busy = owner.submit(), owner.submit()
    link = owner.grant("idle", idle)
    owner.grant("busy", busy)
    owner.done(link, pushed(link)[0])
    node_id = link.peer.node_id
    owner.agent.take(LeaseReturn)
    owner.tasks.on_give_idle_back(owner.agent, GiveIdleBack(b"other"), 1)
    assert list(owner.agent.sent)[-1] == Ok()
    assert owner.agent.take(LeaseReturn) == []
    owner.tasks.on_give_idle_back(owner.agent, GiveIdleBack(node_id), 2)
    assert list(owner.agent.sent)[-1] == Ok()
    assert len(owner.agent.take(LeaseReturn)) == 1
    assert [lease.worker for lease in owner.tasks.leases.values()] == [address_of("busy")]


def test_lost_arguments_are_made_again_while_the_worker_is_free(owner: Owner) -> None:
    far = owner.objects.own(object_name("far"), 1)
    far.value = Value(STORED, b"", (), (), (owner.process.address.node_id,), 1000)
    task = owner.submit(far)
    link = owner.grant("w", task)
    pushed(link)
    node_id = owner.process.address.node_id
    far.value, lost = None, [ObjectLost(far.object_id, [node_id])]
    owner.tasks.on_returned(link, Returned([task.push.task_id], lost=lost), owner.now)
    assert owner.process.lost_copies == [(far.object_id, [node_id])]
    assert task.state is TaskState.WAITING_FOR_ARGUMENTS
    assert task.lease is None
    owner.objects.set_value(far, PLAIN)
    assert [push.attempt for push in pushed(link)] == [0]


# ---------------------------------------------------------------- errors of user code


@pytest.mark.parametrize(
    ("wanted", "matches", "runs"),
    [(True, False, 3), ((ValueError,), True, 3), ((ValueError,), False, 1), (False, False, 1)],
)
def test_user_errors_are_retried_where_wanted(owner: Owner, wanted: Any, matches: bool, runs: int) -> None:
    task = owner.submit(retries=2, retry_exceptions=wanted)
    link = owner.grant("w", task)
    attempts = []
    while pushes := pushed(link):
        attempts += [push.attempt for push in pushes]
        owner.done(link, pushes[0], ERROR, failed=True, retry=matches)
    assert attempts == list(range(runs))
    assert task.entries[0].value == ERROR
    assert [failed for _, _, failed in owner.process.attempts] == [True] * runs


def stored_at(node: str, *nested: tuple[bytes, Any]) -> Value:
    return Value(STORED, b"", (), nested, (node.encode(),), 100)


def test_what_a_failed_attempt_gave_is_let_go_of(owner: Owner) -> None:
    task = owner.submit(results=2, retries=1, retry_exceptions=True)
    link = owner.grant("w", task)
    [push] = pushed(link)
    inside = object_name("inside"), link.peer
    owner.done(link, push, stored_at("there", inside), ERROR, failed=True, retry=True)
    assert link.take(ReleaseHold) == [ReleaseHold(push.task_id, 0)]
    assert not owner.process.dropped  # the next attempt may write over the copy
    [push] = pushed(link)
    owner.done(link, push)
    first, _ = task.entries
    assert owner.process.dropped == [(first.object_id, [b"there"], True)]
    assert not link.take(ReleaseHold)


def test_a_result_that_replaced_what_a_failed_attempt_gave_stays(owner: Owner) -> None:
    task = owner.submit(results=2, retries=1, retry_exceptions=True)
    link = owner.grant("w", task)
    [push] = pushed(link)
    owner.done(link, push, stored_at("there"), ERROR, failed=True, retry=True)
    [push] = pushed(link)
    owner.done(link, push, stored_at("there"), RESULT)
    assert not owner.process.dropped


def test_nested_references_are_held_by_the_worker_until_registered(owner: Owner) -> None:
    task = owner.submit()
    link = owner.grant("w", task)
    nested = ((object_name("inner"), address_of("other")),)
    other = owner.process.workers[address_of("other").worker_id] = WorkerLink(address_of("other"))
    owner.done(link, pushed(link)[0], Value(0, b"", (), nested))
    assert link.take(ReleaseHold) == []
    other.calls[0](Borrowed())
    assert link.take(ReleaseHold) == [ReleaseHold(task.push.task_id, 0)]


def test_a_failed_attempt_that_gave_some_results_releases_what_they_nest(owner: Owner) -> None:
    task = owner.submit(retries=1, results=2, retry_exceptions=True)
    link = owner.grant("w", task)
    partial = Value(0, b"", (), ((object_name("inner"), address_of("other")),))
    owner.done(link, pushed(link)[0], partial, ERROR, failed=True)
    assert link.take(ReleaseHold) == [ReleaseHold(task.push.task_id, 0)]
    [push] = pushed(link)
    owner.done(link, push, RESULT, RESULT)
    assert link.take(ReleaseHold) == []
    owner.drop(task)
    assert owner.entries == {}


def test_an_answer_that_nobody_waits_for_releases_what_it_nests(owner: Owner) -> None:
    link = WorkerLink(address_of("w"))
    push = Push(b"t" * 24, b"", "", None, [], 1)
    owner.done(link, push, Value(0, b"", (), ((object_name("inner"), address_of("other")),)))
    assert link.take(ReleaseHold) == [ReleaseHold(push.task_id)]


# ---------------------------------------------------------------- workers that die


def test_the_running_task_loses_an_attempt_and_those_behind_it_nothing(owner: Owner) -> None:
    tasks, link = run_many(owner, 3)
    assert len(pushed(link)) == 3
    owner.tasks.link_lost(link, owner.now)
    again = owner.grant("w2", tasks[0])
    assert [(push.task_id, push.attempt) for push in pushed(again)] == [
        (tasks[0].push.task_id, 1),
        (tasks[1].push.task_id, 0),
        (tasks[2].push.task_id, 0),
    ]
    assert [task.retries for task in tasks] == [0, 1, 1]


def test_without_retries_the_agent_is_given_time_to_say_why(owner: Owner) -> None:
    task = owner.submit()
    link = owner.grant("w", task)
    lease_id = lease_of(task)
    owner.tasks.link_lost(link, owner.now)
    assert task.state is TaskState.CRASHED
    owner.tasks.on_lost(LeaseLost(lease_id, b"", "killed by signal 9"), owner.now)
    assert owner.failures() == [WorkerCrashed(task.push.task_id, "module.f", "killed by signal 9")]
    assert task.state is TaskState.FINISHED


def test_without_the_agents_word_the_wait_is_bounded(owner: Owner) -> None:
    task = owner.submit()
    link = owner.grant("w", task)
    owner.tasks.link_lost(link, owner.now)
    owner.tasks.tick(owner.now + REASON_WAIT_S / 2)
    assert owner.failures() == []
    owner.tasks.tick(owner.now + REASON_WAIT_S)
    assert owner.failures() == [WorkerCrashed(task.push.task_id, "module.f", "")]
    assert [message.discard for message in owner.agent.take(LeaseReturn)] == [True]
    assert not owner.tasks.tick(owner.now + REASON_WAIT_S)


@pytest.mark.parametrize(
    ("more", "retries", "failures"),
    [
        ({}, 0, [WorkerCrashed((1).to_bytes(24, "big"), "module.f", "why")]),
        ({"node_died": True}, 0, [NodeDied("module.f", "why")]),
        ({"out_of_memory": True}, 0, [OutOfMemory("why")]),
        ({"out_of_memory": True, "retry": False}, 1, [OutOfMemory("why")]),
        ({"out_of_memory": True}, 1, []),
        ({"node_died": True}, 1, []),
    ],
)
def test_the_reason_of_a_death_is_the_tasks(
    owner: Owner, more: dict[str, bool], retries: int, failures: list[Any]
) -> None:
    task = owner.submit(retries=retries)
    link = owner.grant("w", task)
    owner.tasks.on_lost(LeaseLost(lease_of(task), b"", "why", **more), owner.now)
    assert link.closed == more.get("node_died", False)
    owner.tasks.link_lost(link, owner.now)
    assert owner.failures() == failures
    if not failures:
        assert task.state is TaskState.QUEUED


def test_out_of_memory_costs_no_retry(owner: Owner) -> None:
    task = owner.submit(retries=1)
    link = owner.grant("w", task)
    owner.tasks.on_lost(LeaseLost(lease_of(task), b"", "", out_of_memory=True), owner.now)
    owner.tasks.link_lost(link, owner.now)
    assert (task.retries, task.push.attempt) == (1, 1)


def test_a_dead_worker_whose_socket_stays_open_is_cut_off(owner: Owner) -> None:
    task = owner.submit()
    link = owner.grant("w", task)
    owner.tasks.on_lost(LeaseLost(lease_of(task), b"", "why"), owner.now)
    assert not link.closed
    owner.tasks.tick(owner.now + REASON_WAIT_S)
    assert link.closed


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        (ErrorKind.RUNTIME_ENV, EnvironmentFailed("why")),
        (ErrorKind.SETUP_HOOK, EnvironmentFailed("why")),
        (ErrorKind.NOT_FOUND, GroupRemoved()),
        (ErrorKind.INVALID, Unschedulable("why")),
    ],
)
def test_what_can_never_run_fails_with_the_reason(owner: Owner, kind: str, failure: Any) -> None:
    tasks = [owner.submit(), owner.submit()]
    owner.tasks.on_failed(LeaseFailed(tasks[0].pool.key, kind, "why"))
    assert owner.failures() == [failure] * 2
    assert all(task.state is TaskState.FINISHED for task in tasks)
    owner.tasks.on_failed(LeaseFailed(b"unknown", kind, "why"))


def test_a_push_that_cannot_be_encoded_fails_its_task_alone(owner: Owner) -> None:
    tasks, link = run_many(owner, 0)
    link.refuses = lambda message: isinstance(message, Push)
    bad = owner.submit(retries=1)
    assert owner.failures() == [CannotSend("task module.f", "no such field")]
    assert bad.state is TaskState.FINISHED
    link.refuses = lambda _message: False
    owner.submit(retries=1)
    assert len(pushed(link)) == 1
    assert not tasks


# ---------------------------------------------------------------- taking back and recalls


def test_what_hides_behind_a_long_task_is_taken_back(owner: Owner) -> None:
    tasks, link = run_many(owner, 3)
    pushed(link)
    owner.tasks.tick(owner.now)  # from here the first one counts
    owner.now += 10
    owner.tasks.tick(owner.now)
    assert link.take(TakeBack) == [TakeBack(2)]
    owner.tasks.on_returned(link, Returned([task.push.task_id for task in tasks[1:]]), owner.now)
    assert [task.state for task in tasks] == [TaskState.PUSHED, TaskState.QUEUED, TaskState.QUEUED]
    assert pushed(link) == []  # nothing more goes there before it is done
    other = owner.grant("w2", tasks[1])
    assert [push.task_id for push in pushed(other)] == [tasks[1].push.task_id]


def test_a_recalled_worker_goes_back_after_the_task_that_runs(owner: Owner) -> None:
    tasks, link = run_many(owner, 2)
    pushes = pushed(link)
    owner.tasks.on_recall(LeaseRecall(lease_of(tasks[0])))
    assert link.take(TakeBack) == [TakeBack(1)]
    owner.tasks.on_returned(link, Returned([tasks[1].push.task_id]), owner.now)
    assert owner.agent.take(LeaseReturn) == []
    owner.done(link, pushes[0])
    assert len(owner.agent.take(LeaseReturn)) == 1
    assert tasks[1].state is TaskState.QUEUED
    owner.tasks.on_recall(LeaseRecall(b"unknown"))


def test_a_retiring_worker_loses_what_it_has_not_started(owner: Owner) -> None:
    tasks, link = run_many(owner, 2)
    pushed(link)
    owner.tasks.on_retiring(link)
    assert [task.state for task in tasks] == [TaskState.QUEUED] * 2
    assert owner.tasks.leases == {}
    assert [task.push.attempt for task in tasks] == [0, 0]


def test_spread_tasks_get_a_worker_each(owner: Owner) -> None:

    spread = TaskOptions(ResourceRequest({}, SchedulingStrategy("SPREAD")))
    assert owner.tasks.pool(owner.function, spread).once
    assert owner.tasks.pool(owner.function, spread) is owner.tasks.pool(owner.function, spread)


# ---------------------------------------------------------------- cancelling


def test_cancelling_before_the_push_ends_a_task_at_once(owner: Owner) -> None:
    waiting_for = owner.objects.own(object_name("x"), 1)
    queued, blocked = owner.submit(), owner.submit(waiting_for)
    for task in (queued, blocked):
        owner.tasks.cancel(task, False, False)
        owner.tasks.cancel(task, False, False)
    assert owner.failures() == [Cancelled(queued.push.task_id), Cancelled(blocked.push.task_id)]
    link = owner.grant("w", queued)
    assert pushed(link) == []
    owner.objects.set_value(waiting_for, PLAIN)
    assert blocked.state is TaskState.FINISHED
    assert waiting_for.holds == 1


def test_cancelling_at_a_worker_is_the_workers_to_answer(owner: Owner) -> None:
    task = owner.submit(retries=3, retry_exceptions=True)
    link = owner.grant("w", task)
    [push] = pushed(link)
    owner.tasks.cancel(task, True, False)
    assert link.take(Cancel) == [Cancel(task.push.task_id, True, False)]
    owner.done(link, push, ERROR, failed=True)
    assert task.entries[0].value == ERROR
    assert pushed(link) == []


@pytest.mark.parametrize("way", ["dies", "returns it", "retires"])
def test_a_cancelled_task_does_not_come_back(owner: Owner, way: str) -> None:
    task = owner.submit(retries=3)
    link = owner.grant("w", task)
    owner.tasks.cancel(task, False, False)
    if way == "dies":
        owner.tasks.link_lost(link, owner.now)
    elif way == "retires":
        owner.tasks.on_retiring(link)
    else:
        owner.tasks.on_returned(link, Returned([task.push.task_id]), owner.now)
    assert owner.failures() == [Cancelled(task.push.task_id)]
    assert task.state is TaskState.FINISHED


def test_children_of_a_cancelled_task_are_cancelled(owner: Owner) -> None:
    child, other = owner.submit(parent=b"p"), owner.submit(parent=b"q")
    owner.outcomes.cancel_children(b"p", False)
    assert (child.state, other.state) == (TaskState.FINISHED, TaskState.QUEUED)


# ---------------------------------------------------------------- lineage and the end


def test_a_lost_result_is_made_again(owner: Owner) -> None:
    stored = Value(STORED, b"", (), (), (b"n" * 28,), 10)
    task = owner.submit(retries=-1)
    link = owner.grant("w", task)
    owner.done(link, pushed(link)[0], stored)
    assert owner.lineage.rebuild(task.entries[0]) is None
    [push] = pushed(link)
    assert push.attempt == 1
    owner.done(link, push, stored)
    assert task.entries[0].value == stored
    owner.drop(task)
    assert owner.entries == {}
    assert owner.process.freed == [task.entries[0].object_id]


def test_at_the_end_nothing_runs_any_more(owner: Owner) -> None:
    task = owner.submit()
    owner.tasks.close()
    link = owner.grant("w", task)
    assert pushed(link) == []


def test_resting_classes_are_forgotten_in_the_end(owner: Owner) -> None:
    for number in range(RESTING_POOLS + 10):
        owner.function.key = number.to_bytes(16, "big")
        task = owner.submit()
        owner.tasks.cancel(task, False, False)
        owner.drop(task)
        del task
        owner.tasks.tick(owner.now)
    assert len(owner.tasks._pools) <= RESTING_POOLS + 1
