"""Long polls: requests for changes wait here until there is a change."""

from __future__ import annotations

import asyncio


class Waiters:
    """Those who wait for the next change of one thing."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[None]] = set()

    def wake(self) -> None:
        """Something changed."""
        futures, self._futures = self._futures, set()
        for future in futures:
            if not future.done():
                future.set_result(None)

    async def wait(self, timeout_s: float) -> bool:
        """Returns True at the next `wake`, False after `timeout_s`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.add(future)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        finally:
            self._futures.discard(future)
        return True

    def __len__(self) -> int:
        return len(self._futures)
