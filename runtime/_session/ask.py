"""One question to a control store, from a process that is not part of its cluster."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from runtime._clients.control import ControlClient
from runtime._transport.channel import CallError
from runtime._wire.messages.base import Message, Request


def ask_control(address: str, secret: bytes, request: Request[Any], timeout_s: float = 10.0) -> Message:
    """The answer of the control store at `address` (host:port).

    Raises:
        CallError: it cannot be reached within `timeout_s`, or refuses.
    """

    async def ask() -> Message:
        client = ControlClient.over_tcp(address, secret)
        await client.start(timeout_s)
        try:
            answer: Message = await client.call(request, timeout_s=timeout_s)
            return answer
        finally:
            await client.close()

    return _run_apart(ask)


def _run_apart(make: Any) -> Message:
    """Runs a coroutine on an event loop of its own, even where the caller's thread runs one."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(make()))
        except CallError as error:
            outcome.append(error)

    thread = threading.Thread(target=run, name="ask control store")
    thread.start()
    thread.join()
    if not outcome:
        raise RuntimeError("the control store did not answer")
    if isinstance(outcome[0], CallError):
        raise outcome[0]
    answer: Message = outcome[0]
    return answer
