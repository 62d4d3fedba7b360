"""Failures are counted, and what is tried after them."""

import pytest

from runtime.train._core.failure_policy import Decision, FailurePolicy


@pytest.mark.parametrize(
    ("max_failures", "progress", "expected"),
    [
        (0, "n", "g"),
        (2, "yyy", "wwg"),
        (2, "nnn", "wcg"),
        (-1, "nnny", "wccw"),
        (-1, "jny", "ccw"),
    ],
)
def test_decisions(max_failures: int, progress: str, expected: str) -> None:
    policy = FailurePolicy(max_failures)
    names = {Decision.WARM: "w", Decision.COLD: "c", Decision.GIVE_UP: "g"}
    assert "".join(names[policy.failed(each != "j", each == "y")] for each in progress) == expected


def test_failures_of_an_earlier_controller_count() -> None:
    assert FailurePolicy(1, failures=1).failed(True, True) is Decision.GIVE_UP


def test_machines_that_are_taken_away_are_counted_by_themselves() -> None:
    policy = FailurePolicy(max_failures=0, max_preemptions=2)
    assert [policy.preempted() for _ in range(3)] == [Decision.WARM, Decision.WARM, Decision.GIVE_UP]
    assert policy.failures == 0
