"""Errors of tasks are described for those who list tasks, whatever the user's exception classes do."""

from __future__ import annotations

import pytest

from runtime._owner.history import _described
from runtime._wire import serialization


def leave() -> None:
    raise SystemExit(3)


class Leaves(Exception):
    """Leaves the process that rebuilds it."""

    def __reduce__(self) -> tuple[object, ...]:
        return leave, ()


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class LeavesWhenAsked(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class RaisesItself(Exception):
    def __str__(self) -> str:
        raise self


class Markup(str):
    __slots__ = ()


class Marked(Exception):
    def __str__(self) -> str:
        return Markup("marked")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Leaves(), "SystemExit: 3"),
        (Silent(), "RuntimeError: no text"),
        (LeavesWhenAsked(), "SystemExit: 3"),
        (RaisesItself(), "RaisesItself: <exception str() failed>"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_that_cannot_be_described(error: Exception, reason: str) -> None:
    name, message = _described(serialization.serialize(error).data)
    assert name == "TASK_EXECUTION_EXCEPTION"
    assert message.startswith("the error cannot be read here: ")
    assert message.endswith(reason)


def test_an_error_is_described() -> None:
    data = serialization.serialize(ValueError("bad luck")).data
    assert _described(data) == ("TASK_EXECUTION_EXCEPTION", "bad luck")


def test_a_text_of_a_class_of_its_own_becomes_a_plain_one() -> None:
    _, message = _described(serialization.serialize(Marked()).data)
    assert message == "marked"
    assert type(message) is str
