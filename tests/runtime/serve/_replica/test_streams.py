"""Sync generators of a replica: their items, their thread, their end."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator

import pytest

from runtime.serve._replica.streams import AHEAD, iterate
from runtime.serve._replica.threads import Threads

MARK: contextvars.ContextVar[int] = contextvars.ContextVar("mark", default=0)


def same(item: int) -> int:
    return item


def test_all_items_come_in_order_and_the_reader_may_use_the_thread() -> None:
    async def read() -> tuple[list[int], list[str]]:
        threads = Threads(1)
        items, others = [], []
        async for item in iterate(threads, lambda: iter(range(5 * AHEAD)), same):
            items.append(item)
            if (
                item % AHEAD == 0
            ):  # far behind: the generator waits for room, and must not hold the only thread
                others.append(
                    await asyncio.wait_for(threads.run(lambda: threading.current_thread().name), 10)
                )
        threads.close()
        return items, others

    items, others = asyncio.run(read())
    assert items == list(range(5 * AHEAD))
    assert len(others) == 5


def test_what_a_generator_sets_in_its_context_stays_between_its_turns() -> None:
    def marks() -> Iterator[int]:
        for number in range(3 * AHEAD):
            yield MARK.get()
            MARK.set(number + 1)

    async def read() -> list[int]:
        threads = Threads(1)
        found = []
        async for item in iterate(threads, marks, same):
            found.append(item)
            await asyncio.sleep(0)
        threads.close()
        return found

    assert asyncio.run(read()) == list(range(3 * AHEAD))


def test_an_error_comes_after_the_items_before_it() -> None:
    def fails() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("three")

    async def read() -> list[int]:
        threads = Threads(1)
        stream = iterate(threads, fails, same)
        found = [await stream.__anext__(), await stream.__anext__()]
        with pytest.raises(KeyError, match="three"):
            await stream.__anext__()
        threads.close()
        return found

    assert asyncio.run(read()) == [1, 2]


@pytest.mark.parametrize("taken", [1, AHEAD + 1, 3 * AHEAD])
def test_a_reader_that_leaves_closes_the_generator(taken: int) -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            number = 0
            while True:
                yield number
                number += 1
        finally:
            closed.set()

    async def read() -> None:
        threads = Threads(1)
        stream = iterate(threads, endless, same)
        for _ in range(taken):
            await stream.__anext__()
        await stream.aclose()
        threads.close()

    asyncio.run(read())
    assert closed.is_set()
