"""`__del__` of the user's objects: who calls it, and when."""

from __future__ import annotations

import abc
from typing import Any, Generic, TypeVar

import pytest

from runtime.serve._endings import call_when_unused, finish

T = TypeVar("T")
events: list[str] = []


class Plain:
    def __del__(self) -> None:
        events.append("del")


class Slotted:
    __slots__ = ("x",)

    def __del__(self) -> None:
        events.append("del")


class Abstract(abc.ABC, Generic[T]):
    def __del__(self) -> None:
        events.append("del")


class Registering:
    kinds: list[type] = []

    def __init_subclass__(cls) -> None:
        cls.kinds.append(cls)

    def __del__(self) -> None:
        events.append("del")


@pytest.mark.parametrize("kind", [Plain, Slotted, Abstract])
def test_what_is_finished_is_not_destroyed_again(kind: Any) -> None:
    events.clear()
    one = kind()
    assert finish(one)
    assert isinstance(one, kind)
    assert type(one).__name__ == kind.__name__
    del one
    assert events == []


@pytest.mark.parametrize("kind", [Plain, Slotted, Abstract])
def test_what_is_called_when_unused_gets_the_object_once(kind: Any) -> None:
    events.clear()
    kept: list[Any] = []
    one = kind()
    assert call_when_unused(one, kept.append)
    other = one
    del one
    assert kept == []
    del other
    assert len(kept) == 1
    kept.clear()
    assert kept == []
    assert events == []


def test_classes_that_note_their_subclasses_are_left_alone() -> None:
    events.clear()
    one = Registering()
    assert not finish(one)
    assert Registering.kinds == []
    del one
    assert events == ["del"]
