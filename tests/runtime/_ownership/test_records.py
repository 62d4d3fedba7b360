"""The records: holds, what a submission may still do, and its retries."""

from __future__ import annotations

from typing import Any

import pytest

from runtime._core.fsm import InvalidTransition
from runtime._core.tasks import TaskState
from runtime._ownership.records import NO_ARGUMENTS, Entry, Submission, after
from runtime._ownership.released import NOWHERE
from runtime._wire.messages.worker import Done, Push
from tests.runtime._ownership.fakes import object_name


def submission(retries: int = 0, retry_exceptions: Any = False) -> Submission:
    push = Push(b"t" * 24, b"f", "method", None, [], 1)
    return Submission(NO_ARGUMENTS, push, retries, retries, retry_exceptions, 0.0, b"", TaskState.QUEUED)


def failure(retry: bool = False) -> Done:
    return Done(b"t" * 24, [], failed=True, retry=retry)


def test_the_last_release_ends_an_entry_unless_others_borrow_it() -> None:
    entry = Entry(object_name("x"), released=NOWHERE)
    entry.hold()
    entry.hold()
    assert [entry.release(), entry.release()] == [False, True]
    entry.hold()
    entry.borrowers = {b"borrower"}
    assert not entry.release()


def test_a_detached_entry_refers_to_nothing() -> None:
    entry = Entry(object_name("x"), released=NOWHERE, callbacks=[print], on_free=print, on_registered=[print])
    entry.task = submission()
    entry.detach()
    assert (entry.callbacks, entry.task, entry.on_free, entry.on_registered) == (None, None, None, None)


def test_a_stored_result_counts_once() -> None:
    task, entry = submission(), Entry(object_name("x"), released=NOWHERE)
    task.stores(entry)
    task.stores(entry)
    assert task.stored_results == 1
    assert entry.task is task


def test_only_the_steps_of_the_table_are_taken() -> None:
    task = submission()
    task.move(TaskState.PUSHED)
    assert task.may_be_cancelled
    task.move(TaskState.CANCELLING)
    assert not task.may_be_cancelled
    task.move(TaskState.FINISHED)
    assert not task.may_be_cancelled
    with pytest.raises(InvalidTransition):
        task.move(TaskState.PUSHED)
    assert task.state is TaskState.FINISHED


def test_errors_of_user_code_use_up_the_retries_that_were_asked_for() -> None:
    task = submission(2, True)
    assert [task.takes_retry(failure()) for _ in range(3)] == [True, True, False]
    assert not submission(2, False).takes_retry(failure())
    unbounded = submission(-1, True)
    assert all(unbounded.takes_retry(failure()) for _ in range(10))


def test_with_classes_the_worker_says_whether_an_error_is_one_of_them() -> None:
    task = submission(1, (ValueError,))
    assert not task.takes_retry(failure())
    assert task.retries == 1
    assert task.takes_retry(failure(retry=True))


def test_what_is_being_cancelled_does_not_run_again() -> None:
    task = submission(1, True)
    task.move(TaskState.PUSHED)
    task.move(TaskState.CANCELLING)
    assert not task.takes_retry(failure())


def test_only_the_last_of_several_calls_back() -> None:
    called: list[int] = []
    one = after(3, lambda: called.append(1))
    one()
    one()
    assert not called
    one()
    assert called == [1]
