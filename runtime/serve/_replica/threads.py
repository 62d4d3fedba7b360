"""Threads for the user's sync code."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from runtime._system import settings


class Threads:
    """Runs sync code for an event loop: on one thread, in turn, or on a pool with a thread for each request.

    Args:
        most: requests at a time.
    """

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(self._size(most), thread_name_prefix="serve-sync")

    def _size(self, most: int) -> int:
        return max(1, most) if settings.SERVE_SYNC_IN_THREADS.get() else 1

    def resize(self, most: int) -> None:
        """For another number of requests at a time. What runs goes on where it is."""
        if settings.SERVE_SYNC_IN_THREADS.get():
            self._pool.shutdown(wait=False)
            self._pool = ThreadPoolExecutor(self._size(most), thread_name_prefix="serve-sync")

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function on a thread. When cancelled, it still waits for a function that has begun, which nothing can
        stop, so that what runs is never more than what is counted.

        Raises: what the function raises.
        """
        frame = contextvars.copy_context()
        running = self._pool.submit(frame.run, _call, functools.partial(function, *args, **kwargs))
        waiting = asyncio.wrap_future(running)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if not running.cancel():
                await asyncio.wait([waiting])
                if not waiting.cancelled():
                    waiting.exception()  # nobody wants it
            raise

    def close(self) -> None:
        """Takes nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _call(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except StopIteration as error:  # a future cannot have it, and its reader would wait for ever
        raise RuntimeError("The function raised StopIteration.") from error
