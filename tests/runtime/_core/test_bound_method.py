"""Which method a call's name means."""

from __future__ import annotations

import pytest

from runtime._core.bound_method import bound_method


class Base:
    def inherited(self) -> str:
        return "inherited"


class Actor(Base):
    attribute = 3

    def __init__(self) -> None:
        self.items = ["an attribute of the instance"]

    def items(self) -> str:  # type: ignore[no-redef]
        return "a method"

    @staticmethod
    def static() -> str:
        return "static"

    @classmethod
    def of_class(cls) -> str:
        return cls.__name__


@pytest.mark.parametrize(
    ("name", "result"),
    [("items", "a method"), ("inherited", "inherited"), ("static", "static"), ("of_class", "Actor")],
)
def test_the_class_decides(name: str, result: str) -> None:
    assert bound_method(Actor(), name)() == result


def test_a_method_that_is_missing_is_named() -> None:
    with pytest.raises(AttributeError, match="Actor has no method 'absent'"):
        bound_method(Actor(), "absent")
