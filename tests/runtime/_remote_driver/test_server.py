"""The server's sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest

from runtime._remote_driver import server
from runtime._remote_driver.server import Relay, Server


def test_a_program_that_comes_again_while_its_driver_process_starts_gets_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []

    class Made:
        async def run(self) -> None:
            await asyncio.Event().wait()

    async def start(_path: str) -> Made:
        made.append(Made())
        await asyncio.sleep(0)
        return made[-1]  # type: ignore[return-value]

    monkeypatch.setattr(server, "find_agent", lambda _address: SimpleNamespace(unix_path=""))
    monkeypatch.setattr(Relay, "start", start)

    async def test() -> None:
        served = Server(b"secret", "")
        cut_off = asyncio.create_task(served._start_once(b"session"))
        await asyncio.sleep(0)
        cut_off.cancel()
        again = await asyncio.gather(served._start_once(b"session"), served._start_once(b"session"))
        assert list(again) == [made[0], made[0]]
        assert len(made) == 1

    asyncio.run(test())


def test_a_program_that_comes_back_to_a_driver_process_that_is_ending_is_told() -> None:
    """It has said its last, which did not reach the program, and has not left yet."""

    class Context:
        async def abort(self, code: object, details: str) -> None:
            raise LookupError(details)

        async def write(self, _envelope: bytes) -> None: ...

    async def nothing() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def test() -> None:
        relay = Relay(SimpleNamespace())  # type: ignore[arg-type]
        relay._transport = cast(
            asyncio.Transport, SimpleNamespace(write=lambda _data: None, resume_reading=lambda: None)
        )
        relay._is_finished = True
        relay._is_lost.set()
        relay.ended.set()
        for _ in range(2):
            with pytest.raises(LookupError, match="has ended"):
                async with asyncio.timeout(60):
                    await asyncio.create_task(relay.serve(nothing(), Context()))

    asyncio.run(test())
