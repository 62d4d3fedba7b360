"""Failures of callbacks are logged with their traceback, and not without end."""

from __future__ import annotations

import pytest

from runtime._transport.failures import QUIET_S, Failures


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def fail(failures: Failures, what: str) -> None:
    try:
        raise ValueError("no luck")
    except ValueError:
        failures.report(what)


def test_the_first_one_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    fail(Failures(Clock()), "the tick")
    (record,) = caplog.records
    assert record.getMessage().startswith("the tick failed")
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


def test_repetitions_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    failures = Failures(clock)
    for _ in range(1000):
        fail(failures, "the tick")
    fail(failures, "another")
    assert len(caplog.records) == 2
    clock.now += QUIET_S
    fail(failures, "the tick")
    assert "999 more times" in caplog.records[2].getMessage()
