"""What makes an actor's class an asynchronous one."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest

from runtime._owner.functions import is_async


class Plain:
    limit = 3

    def call(self) -> None: ...

    @classmethod
    def build(cls) -> None: ...


class Coroutine(Plain):
    async def call(self) -> None: ...  # type: ignore[override]


class Generator:
    async def items(self) -> AsyncIterator[int]:
        yield 1


class Static:
    @staticmethod
    async def call() -> None: ...


class OfTheClass:
    @classmethod
    async def call(cls) -> None: ...


class Overridden(Coroutine):
    def call(self) -> None: ...  # type: ignore[override]


class Inherited(Coroutine):
    pass


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        (Plain, False),
        (Coroutine, True),
        (Generator, True),
        (Static, True),
        (OfTheClass, True),
        (Overridden, False),
        (Inherited, True),
        (object, False),
    ],
)
def test_a_class_with_coroutines(cls: type[Any], expected: bool) -> None:
    assert is_async(cls) is expected
    by_the_book = any(
        inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
        for _, member in inspect.getmembers(cls, inspect.isroutine)
    )
    assert by_the_book is expected
