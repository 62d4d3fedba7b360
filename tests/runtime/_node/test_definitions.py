"""Classes of actors on their way to the processes of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from runtime._clients.control import ControlClient
from runtime._node import definitions
from runtime._node.definitions import Definitions
from runtime._transport.channel import CallError
from runtime._wire.messages.base import ErrorKind
from runtime._wire.messages.control import DEFINITIONS, KvGet, KvValue

KEYS = [bytes([number]) * 16 for number in range(4)]


class Control(ControlClient):
    """A control store that is asked; `answer` says what it has."""

    def __init__(self, answer: Callable[[bytes], bytes | None]) -> None:
        self.asked: list[bytes] = []
        self.answer = answer

    async def call(self, request: Any, timeout_s: float | None = 30.0, retry: bool = True) -> Any:
        assert isinstance(request, KvGet)
        assert request.namespace == DEFINITIONS
        self.asked.append(request.key)
        return KvValue(self.answer(request.key))


def test_a_class_is_asked_for_once() -> None:
    control = Control(lambda key: key * 2)

    async def main() -> None:
        known = Definitions(control)
        assert [await known.get(key) for key in (KEYS[0], KEYS[1], KEYS[0])] == [
            KEYS[0] * 2,
            KEYS[1] * 2,
            KEYS[0] * 2,
        ]

    asyncio.run(main())
    assert control.asked == [KEYS[0], KEYS[1]]


def test_what_is_not_there_is_asked_for_again() -> None:
    answers: list[bytes | None] = [None, b"class"]
    control = Control(lambda _key: answers.pop(0))

    async def main() -> None:
        known = Definitions(control)
        assert await known.get(KEYS[0]) is None
        assert await known.get(KEYS[0]) == b"class"

    asyncio.run(main())


def test_a_control_store_that_is_away_is_no_error_here() -> None:
    def away(_key: bytes) -> bytes:
        raise CallError(ErrorKind.UNAVAILABLE, "away")

    assert asyncio.run(Definitions(Control(away)).get(KEYS[0])) is None


def test_the_classes_that_were_used_longest_ago_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "MOST_BYTES", 40)
    control = Control(lambda key: key)

    async def main() -> None:
        known = Definitions(control)
        for key in (KEYS[0], KEYS[1], KEYS[0], KEYS[2]):
            await known.get(key)
        control.asked.clear()
        await known.get(KEYS[0])
        await known.get(KEYS[1])

    asyncio.run(main())
    assert control.asked == [KEYS[1]]
