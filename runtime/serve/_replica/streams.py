"""Iteration of the user's sync generators, on a thread, by the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from runtime.serve._replica.threads import Threads

AHEAD = 64
"""How many items a generator may be ahead of what was sent."""


class _Handover:
    """Items on their way from a thread to an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[Any] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._came = asyncio.Event()
        self._is_waking = False

    def fill(self, make: Callable[[], Iterator[Any]], convert: Callable[[Any], Any]) -> None:
        """Iterates, on the calling thread. It waits for room, and returns early if nobody wants more."""
        items = make()
        try:
            for item in items:
                if not self._put(convert(item)):
                    return
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    def _put(self, item: Any) -> bool:
        with self._changed:
            while len(self._items) >= AHEAD and not self._closed:
                self._changed.wait()  # until the other side takes some, or closes
            if self._closed:
                return False
            self._items.append(item)
            wake, self._is_waking = not self._is_waking, True
        if wake:
            self._loop.call_soon_threadsafe(self._came.set)
        return True

    async def take(self) -> list[Any]:
        """The next items; at least one."""
        await self._came.wait()
        with self._changed:
            self._came.clear()
            self._is_waking = False
            items = list(self._items)
            self._items.clear()
            self._changed.notify()
        return items

    def close(self) -> None:
        """Nobody wants more."""
        with self._changed:
            self._closed = True
            self._changed.notify()


async def iterate(
    threads: Threads, make: Callable[[], Iterator[Any]], convert: Callable[[Any], Any]
) -> AsyncGenerator[Any, None]:
    """The items of a sync generator, which is made and iterated on a thread. When this generator is closed, the thread
    stops at its next item.

    Args:
        convert: is applied to each item, on the thread.

    Raises: what the generator raises.
    """
    handover = _Handover(asyncio.get_running_loop())
    filling = asyncio.ensure_future(threads.run(handover.fill, make, convert))
    filling.add_done_callback(lambda _: handover._came.set())
    try:
        while True:
            items = await handover.take()
            for item in items:
                yield item
            if not items and filling.done():
                break
            if filling.done():
                handover._came.set()  # what came at last
        await filling
    finally:
        handover.close()
        if not filling.done():
            filling.cancel()
            await asyncio.wait([filling])
        if not filling.cancelled():
            filling.exception()
