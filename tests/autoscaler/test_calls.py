"""Blocking calls beside an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from autoscaler import calls
from autoscaler.calls import MOST_UNANSWERED, BlockingCalls
from autoscaler.provider import Capacity, SetupError, Transient


def play(scenario: Callable[[BlockingCalls], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(BlockingCalls())

    asyncio.run(main())


def test_results_and_known_errors_come_through() -> None:
    def refuse(error: Exception) -> None:
        raise error

    async def scenario(blocking: BlockingCalls) -> None:
        assert await blocking.run(lambda: 5, "list", 60.0) == 5
        for error in (Capacity("none"), SetupError("pip", "exit status 1")):
            with pytest.raises(type(error)):
                await blocking.run(lambda error=error: refuse(error), "create", 60.0)
        with pytest.raises(Transient, match="list: KeyError"):
            await blocking.run(lambda: refuse(KeyError("a bug")), "list", 60.0)

    play(scenario)


def test_calls_that_never_return_are_few_and_are_written_off(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    started: list[int] = []

    def stuck() -> None:
        started.append(1)
        release.wait(60.0)

    async def scenario(blocking: BlockingCalls) -> None:
        for _ in range(MOST_UNANSWERED):
            with pytest.raises(Transient, match="did not end"):
                await blocking.run(stuck, "list", 0.01)
        with pytest.raises(Transient, match="not been answered for long"):
            await blocking.run(stuck, "list", 0.01)
        assert len(started) == MOST_UNANSWERED
        assert await blocking.run(lambda: 1, "create", 60.0) == 1, "others go on"
        monkeypatch.setattr(calls, "WRITTEN_OFF_S", 0.0)
        assert await blocking.run(lambda: 2, "list", 60.0) == 2
        release.set()

    play(scenario)


def test_a_late_answer_makes_room_again() -> None:
    release = threading.Event()

    async def scenario(blocking: BlockingCalls) -> None:
        for _ in range(MOST_UNANSWERED):
            with pytest.raises(Transient):
                await blocking.run(lambda: release.wait(60.0), "list", 0.01)
        release.set()
        async with asyncio.timeout(60.0):
            while True:
                try:
                    assert await blocking.run(lambda: 3, "list", 60.0) == 3
                    return
                except Transient:
                    await asyncio.sleep(0.01)

    play(scenario)
