"""What tasks and calls share: whose answer counts, what becomes of results, and who is cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from runtime._core import ids
from runtime._core.tasks import TaskState
from runtime._ownership.failures import Cancelled
from runtime._ownership.records import INLINE_ERROR, STORED
from runtime._wire.messages.worker import Push, ReleaseHold, StreamItem, Value
from tests.runtime._ownership.fakes import PLAIN, WorkerLink, address_of, object_name
from tests.runtime._ownership.submitting import RESULT, Owner

ERROR = Value(INLINE_ERROR, b"raised")


@pytest.fixture
def owner() -> Owner:
    return Owner()


def pushed(link: WorkerLink) -> Push:
    [push] = link.take(Push)
    assert isinstance(push, Push)
    return push


def test_each_result_gets_its_value(owner: Owner) -> None:
    task = owner.submit(results=2)
    link = owner.grant("w", task)
    owner.done(link, pushed(link), RESULT, PLAIN)
    assert [entry.value for entry in task.entries] == [RESULT, PLAIN]


def test_one_error_is_that_of_every_result(owner: Owner) -> None:
    task = owner.submit(results=3)
    link = owner.grant("w", task)
    owner.done(link, pushed(link), ERROR, failed=True)
    assert [entry.value for entry in task.entries] == [ERROR] * 3
    assert owner.process.attempts == [(task.push.task_id, 0, True)]


def test_a_generator_that_raised_keeps_the_results_it_gave(owner: Owner) -> None:
    task = owner.submit(results=2)
    link = owner.grant("w", task)
    owner.done(link, pushed(link), RESULT, ERROR, failed=True)
    assert [entry.value for entry in task.entries] == [RESULT, ERROR]


def test_only_the_first_answer_counts(owner: Owner) -> None:
    task = owner.submit()
    link = owner.grant("w", task)
    push = pushed(link)
    owner.done(link, push, RESULT)
    owner.done(link, push, PLAIN)
    assert task.entries[0].value == RESULT


def test_an_answer_to_what_no_worker_has_does_not_count_and_keeps_nothing(owner: Owner) -> None:
    task = owner.submit()
    stranger = WorkerLink(address_of("stranger"))
    nested = ((object_name("inner"), address_of("other")),)
    owner.done(stranger, task.push, Value(0, b"", (), nested))
    assert task.state is TaskState.QUEUED
    assert owner.outcomes.pending == {task.push.task_id: task}
    assert stranger.take(ReleaseHold) == [ReleaseHold(task.push.task_id)]


def test_items_go_to_the_stream_of_what_a_worker_has(owner: Owner) -> None:
    class Stream:
        def __init__(self) -> None:
            self.items: list[int] = []

        def item(self, _link: Any, message: StreamItem, _task: Any) -> None:
            self.items.append(message.index)

    task = owner.submit()
    stream: Any = Stream()
    task.stream = stream
    stranger = WorkerLink(address_of("stranger"))
    owner.outcomes.on_item(stranger, StreamItem(task.push.task_id, 0, PLAIN))
    link = owner.grant("w", task)
    owner.outcomes.on_item(link, StreamItem(task.push.task_id, 1, PLAIN))
    owner.outcomes.on_item(link, StreamItem(b"u" * 24, 2, PLAIN))
    assert stream.items == [1]


def test_arguments_are_kept_while_a_stored_result_may_have_to_be_made_again(owner: Owner) -> None:
    argument = owner.objects.own(object_name("x"), 1)
    argument.value = PLAIN
    stored = Value(STORED, b"", (), (), (b"n" * 28,), 10)
    for value, holds in ((RESULT, 1), (stored, 2)):
        task = owner.submit(argument, retries=1)
        link = (
            owner.grant("w", task)
            if task.lease is None
            else owner.process.workers[task.lease.worker.worker_id]
        )
        owner.done(link, pushed(link), value)
        assert argument.holds == holds
    owner.drop(task)
    assert argument.holds == 1


def test_cancelling_by_id_is_for_what_is_not_over(owner: Owner) -> None:
    task, other = owner.submit(), owner.submit()
    [entry] = task.entries
    owner.outcomes.cancel(entry.object_id, False, False)
    owner.outcomes.cancel(entry.object_id, False, False)
    owner.outcomes.cancel(ids.object_id(b"u" * 24, 1), False, False)
    assert owner.failures() == [Cancelled(task.push.task_id)]
    assert other.state is TaskState.QUEUED


@pytest.mark.parametrize("when", ["before its end", "after its end"])
def test_what_a_cancelled_task_gave_is_not_rebuilt(owner: Owner, when: str) -> None:
    task = owner.submit(retries=-1)
    [entry] = task.entries
    link = owner.grant("w", task)
    if when == "before its end":
        owner.outcomes.cancel(entry.object_id, False, False)
    owner.done(link, pushed(link), Value(STORED, b"", (), (), (b"n" * 28,), 10))
    if when == "after its end":
        owner.outcomes.cancel(entry.object_id, False, False)
    assert entry.value is not None
    refusal = owner.lineage.rebuild(entry)
    assert refusal is not None
    assert refusal.reason == "OBJECT_UNRECONSTRUCTABLE_TASK_CANCELLED"


def test_cancelling_any_result_after_the_end_is_for_all_of_the_task(owner: Owner) -> None:
    task = owner.submit(retries=-1, results=2)
    small, stored = task.entries
    link = owner.grant("w", task)
    owner.done(link, pushed(link), PLAIN, Value(STORED, b"", (), (), (b"n" * 28,), 10))
    owner.outcomes.cancel(small.object_id, False, False)
    refusal = owner.lineage.rebuild(stored)
    assert refusal is not None
    assert refusal.reason == "OBJECT_UNRECONSTRUCTABLE_TASK_CANCELLED"


def test_children_are_cancelled_from_the_last_to_the_first(owner: Owner) -> None:
    children = [owner.submit(parent=b"p") for _ in range(3)]
    other = owner.submit(parent=b"q")
    owner.outcomes.cancel_children(b"p", False)
    assert owner.failures() == [Cancelled(child.push.task_id) for child in reversed(children)]
    assert other.state is TaskState.QUEUED


def test_an_error_passes_through_a_chain_of_any_length(owner: Owner) -> None:
    tasks = [owner.submit()]
    for _ in range(2000):
        tasks.append(owner.submit(tasks[-1].entries[0]))
    link = owner.grant("w", tasks[0])
    owner.done(link, pushed(link), ERROR, failed=True)
    assert {task.state for task in tasks} == {TaskState.FINISHED}
    assert owner.process.raised == []
    owner.drop(*tasks)
    assert owner.entries == {}
