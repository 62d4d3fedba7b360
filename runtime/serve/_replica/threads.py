"""Threads for the user's sync code."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

MANY = "RAY_SERVE_RUN_SYNC_IN_THREADPOOL"
"""With this variable set to 1 sync methods run at the same time; otherwise one after the other."""


class Threads:
    """Runs sync code for an event loop: on one thread, in turn, or on a pool with a thread for each request.

    Args:
        most: requests at a time.
    """

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(self._size(most), thread_name_prefix="serve-sync")

    def _size(self, most: int) -> int:
        return max(1, most) if os.environ.get(MANY) == "1" else 1

    def resize(self, most: int) -> None:
        """For another number of requests at a time. What runs goes on where it is."""
        if os.environ.get(MANY) == "1":
            self._pool.shutdown(wait=False)
            self._pool = ThreadPoolExecutor(self._size(most), thread_name_prefix="serve-sync")

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function on a thread. When cancelled, it still waits for a function that has begun, which nothing can
        stop, so that what runs is never more than what is counted.

        Raises: what the function raises.
        """
        frame = contextvars.copy_context()
        running = self._pool.submit(functools.partial(frame.run, function, *args, **kwargs))
        waiting = asyncio.wrap_future(running)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if not running.cancel():
                await asyncio.wait([waiting])
                if not waiting.cancelled():
                    waiting.exception()  # nobody wants it
            raise
        except StopIteration as error:
            raise RuntimeError("the function raised StopIteration") from error

    def close(self) -> None:
        """Takes nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
