"""Validations of checkpoints: one after another, and each has one outcome."""

from __future__ import annotations

from typing import Any

import pytest

from runtime._controllers.controller import Cancel, Done, Event, Failed, Forget, Sleep, Submit, TimerFired
from runtime.train._core.validations import Outcome, Pending, Validations
from runtime.train._core.validations import ReportedCheckpointStatus as Status


def started(effects: list[Any]) -> list[Any]:
    return [(each.key, *each.args) for each in effects if isinstance(each, Submit)]


def test_one_runs_at_a_time_in_order() -> None:
    validations = Validations("function", {"num_cpus": 2})
    assert not validations.are_pending
    effects = validations.add([Pending("a", (1,)), Pending("b", (2,))], 5.0)
    assert effects == [
        Submit(("validation", 1), "function", (1,), options={"num_cpus": 2}, fetch=True),
    ]
    assert validations.add([Pending("c", (3,))], 6.0) == []
    (wait,) = validations.waits()
    assert (wait.since_s, wait.limit_s) == (5.0, None)
    assert "checkpoint a" in wait.what
    effects, outcomes = validations.step(Done(("validation", 1), {"x": 1}), 7.0)
    assert outcomes == [Outcome("a", Status.VALIDATED, {"x": 1})]
    assert Forget(("validation", 1)) in effects
    assert started(effects) == [(("validation", 2), 2)]


def test_they_are_pending_until_the_last_outcome_is_recorded() -> None:
    validations = Validations()
    validations.add([Pending("a")], 0.0)
    validations.step(Done(("validation", 1), {}), 1.0)
    assert validations.are_pending
    assert not validations.need_resources
    validations.recorded()
    assert not validations.are_pending


def test_a_failure_is_an_outcome_and_the_next_begins() -> None:
    validations = Validations()
    validations.add([Pending("a", (1,), 9.0), Pending("b", (2,))], 0.0)
    error = ValueError("no")
    effects, outcomes = validations.step(Failed(("validation", 1), error), 1.0)
    assert outcomes == [Outcome("a", Status.VALIDATION_FAILED, error=error)]
    assert Sleep(("validation", 1), -1) in effects, "its timer goes on"
    assert started(effects) == [(("validation", 2), 2)]


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("late", [Done(("validation", 1), {}), Failed(("validation", 1), OSError())])
def test_one_that_takes_too_long_is_cancelled_and_what_comes_later_does_not_count(
    late: Event, others: int
) -> None:
    validations = Validations()
    effects = validations.add([Pending("a", (1,), 9.0), Pending("b", (2,), 9.0)][: 1 + others], 0.0)
    assert Sleep(("validation", 1), 9.0) in effects
    effects, outcomes = validations.step(TimerFired(("validation", 1)), 9.0)
    assert outcomes == [Outcome("a", Status.VALIDATION_TIMEOUT)]
    assert effects[0] == Cancel(("validation", 1), force=True)
    assert started(effects) == [(("validation", 2), 2)] * others
    effects, outcomes = validations.step(late, 10.0)
    assert (started(effects), outcomes) == ([], [])
    assert (Forget(("validation", 1)) in effects) == isinstance(late, Done)


def test_after_the_end_nothing_is_pending_and_nothing_begins() -> None:
    validations = Validations()
    validations.add([Pending("a"), Pending("b")], 0.0)
    assert validations.end() == [Cancel(("validation", 1), force=True)]
    assert not validations.are_pending
    assert validations.add([Pending("c")], 1.0) == []
    assert validations.step(Failed(("validation", 1), OSError()), 2.0) == ([], [])
    assert validations.waits() == []
    assert validations.end() == []
