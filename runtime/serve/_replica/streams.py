"""Iteration of the user's sync generators, on a thread, by the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from runtime.serve._replica.threads import Threads

AHEAD = 64
"""How many items a generator may be ahead of what was sent."""


class _Handover:
    """Items on their way from a thread to an event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make: Callable[[], Iterator[Any]],
        convert: Callable[[Any], Any],
    ) -> None:
        self._loop = loop
        self._make, self._convert = make, convert
        self._iterator: Iterator[Any] | None = None
        self._items: deque[Any] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self.came = asyncio.Event()
        self._is_waking = False

    def fill(self) -> bool:
        """Iterates, on the calling thread, until there is no room: the thread is others' then. Whether that was all."""
        if self._iterator is None:
            self._iterator = iter(self._make())
        return all(self._put(self._convert(item)) for item in self._iterator)

    def end(self) -> None:
        """Closes a generator that nobody iterates any more."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()

    def _put(self, item: Any) -> bool:
        """Whether there is room for another."""
        with self._lock:
            if self._closed:
                return False
            self._items.append(item)
            has_room = len(self._items) < AHEAD
            wake, self._is_waking = not self._is_waking, True
        if wake:
            self._loop.call_soon_threadsafe(self.came.set)
        return has_room

    async def take(self) -> list[Any]:
        """The next items; none if `came` was set for another reason."""
        await self.came.wait()
        with self._lock:
            self.came.clear()
            self._is_waking = False
            items = list(self._items)
            self._items.clear()
        return items

    def close(self) -> None:
        """Nobody wants more."""
        with self._lock:
            self._closed = True


async def iterate(
    threads: Threads, make: Callable[[], Iterator[Any]], convert: Callable[[Any], Any]
) -> AsyncGenerator[Any, None]:
    """The items of a sync generator, which is made and iterated on threads. A generator that is far ahead of its reader
    gives its thread back: the reader may want it for another call. When this generator is closed, the thread stops at
    its next item.

    Args:
        convert: is applied to each item, on the thread.

    Raises: what the generator raises.
    """
    handover = _Handover(asyncio.get_running_loop(), make, convert)
    context = contextvars.copy_context()  # what the generator sets there stays between its turns

    def turn() -> asyncio.Future[bool]:
        filling = asyncio.ensure_future(threads.run(context.run, handover.fill))
        filling.add_done_callback(lambda _: handover.came.set())
        return filling

    filling = turn()
    try:
        while True:
            is_over = filling.done()  # asked first: all that it has put is taken below
            for item in await handover.take():
                yield item
            if is_over and await filling:
                break
            if is_over:
                filling = turn()
            elif filling.done():
                handover.came.set()  # the end itself, or what came at last
    finally:
        handover.close()
        if not filling.done():
            filling.cancel()
            await asyncio.wait([filling])
        is_exhausted = not filling.cancelled() and filling.exception() is None and filling.result()
        if not is_exhausted:
            await threads.run(context.run, handover.end)
