"""Tasks and actors that yield, for the tests of generators."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest

from tests.under_test import ray


@ray.remote
def count(n: int, fail_at: int = -1) -> Any:
    for i in range(n):
        if i == fail_at:
            raise ValueError("boom")
        yield i


@ray.remote
class Gate:
    """Opens once, for everybody."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def open(self) -> None:
        self.event.set()

    async def wait(self) -> None:
        await self.event.wait()


@ray.remote
class Streams:
    def plain(self, n: int, fail_at: int = -1) -> Any:
        for i in range(n):
            if i == fail_at:
                raise ValueError("boom")
            yield i

    def not_a_generator(self) -> list[int]:
        return [1, 2]

    def endless(self) -> Any:
        i = 0
        while True:
            yield i
            i += 1
            time.sleep(0.01)

    def crash(self, after: int) -> Any:
        yield from range(after)
        os._exit(1)

    def ping(self) -> str:
        return "pong"


@ray.remote
class AsyncStreams:
    async def plain(self, n: int, fail_at: int = -1) -> Any:
        for i in range(n):
            if i == fail_at:
                raise ValueError("boom")
            await asyncio.sleep(0)
            yield i

    async def endless(self) -> Any:
        i = 0
        while True:
            yield i
            i += 1
            await asyncio.sleep(0.01)

    async def after(self, gate: Any) -> Any:
        yield "first"
        await gate.wait.remote()
        yield "second"


def kinds() -> Any:
    return pytest.mark.parametrize("kind", ["task", "actor", "threaded actor", "async actor"])


def start(kind: str, *args: int) -> Any:
    if kind == "task":
        return count.remote(*args)
    options = {"max_concurrency": 4} if kind == "threaded actor" else {}
    cls = AsyncStreams if kind == "async actor" else Streams
    actor = cls.options(**options).remote()
    ray.get(actor.__ray_ready__.remote())
    gen = actor.plain.remote(*args)
    gen.keep = actor  # the actor lives as long as its handle
    return gen


def drain(gen: Any) -> list[Any]:
    """Every value; for an error, its class."""
    values: list[Any] = []
    for ref in gen:
        try:
            values.append(ray.get(ref))
        except Exception as error:
            values.append(type(error).__mro__)
    return values
