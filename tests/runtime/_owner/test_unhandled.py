"""Errors nobody looked at are logged, whatever the user's exception classes do when they are rebuilt."""

from __future__ import annotations

import logging
import threading

import pytest

from runtime._owner.unhandled import UnhandledErrors
from runtime._wire import serialization
from runtime._wire.messages.worker import Value
from runtime.exceptions import RayTaskError, TaskCancelledError

LIMIT_S = 30.0


def leave() -> None:
    raise SystemExit(3)


class Leaves(Exception):
    """Leaves the process that rebuilds it."""

    def __reduce__(self) -> tuple[object, ...]:
        return leave, ()


class FailsWithoutText(Exception):
    """Cannot be rebuilt, and what that raises cannot be printed."""

    def __init__(self, text: str, number: int) -> None:
        if number:
            raise FailsWithoutText(text, 0)

    def __reduce__(self) -> tuple[object, ...]:
        return FailsWithoutText, ("", 1)

    def __str__(self) -> str:
        raise RuntimeError("no text")


def value(error: Exception) -> Value:
    return Value(1, serialization.serialize(error).data)


@pytest.mark.parametrize("odd", [Leaves(), FailsWithoutText("", 0)], ids=lambda error: type(error).__name__)
def test_an_error_that_cannot_be_rebuilt_does_not_end_the_logging(
    odd: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    errors = UnhandledErrors()
    with caplog.at_level(logging.ERROR, "runtime"):
        errors.report(value(odd))
        errors.report(value(RayTaskError("f", "the one after", None)))
        for thread in threading.enumerate():
            if thread.name == "unhandled-errors":
                thread.join(LIMIT_S)
    first, second = (record.getMessage() for record in caplog.records)
    assert "cannot be rebuilt here" in first
    assert "the one after" in second


def test_what_was_cancelled_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    errors = UnhandledErrors()
    with caplog.at_level(logging.ERROR, "runtime"):
        errors.report(value(RayTaskError("f", "cancelled while it ran", TaskCancelledError())))
        errors.report(value(RayTaskError("f", "the one after", None)))
        for thread in threading.enumerate():
            if thread.name == "unhandled-errors":
                thread.join(LIMIT_S)
    (record,) = caplog.records
    assert "the one after" in record.getMessage()
