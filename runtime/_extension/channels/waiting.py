"""Waits for descriptors until a deadline: in a thread, or in an event loop."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Iterable


def deadline_of(timeout_s: float | None) -> float | None:
    """The monotonic time at which a wait ends; None: no limit."""
    return None if timeout_s is None else time.monotonic() + timeout_s


def left_ms(deadline: float | None) -> int | None:
    """Milliseconds until a deadline, rounded up."""
    if deadline is None:
        return None
    return max(0, -int(-(deadline - time.monotonic()) * 1000 // 1))


class Waiter:
    """Waits until one of some descriptors is readable.

    Args:
        fds: the descriptors, open as long as this is used.
    """

    def __init__(self, fds: Iterable[int]) -> None:
        self._fds = tuple(fds)
        self._poll = select.poll()
        for fd in self._fds:
            self._poll.register(fd, select.POLLIN)
        self._loops: dict[asyncio.AbstractEventLoop, asyncio.Future[None]] = {}

    def wait(self, deadline: float | None) -> list[int]:
        """The readable ones; none: the deadline has passed. Blocks the thread."""
        return [fd for fd, _ in self._poll.poll(left_ms(deadline))]

    async def wait_async(self, deadline: float | None) -> list[int]:
        """The same for an event loop; one waiter at a time."""
        ready = self.wait(0.0)
        if ready:
            return ready
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        for fd in self._fds:
            loop.add_reader(fd, _set, woken)
        self._loops[loop] = woken
        try:
            async with asyncio.timeout_at(
                None if deadline is None else loop.time() + deadline - time.monotonic()
            ):
                await woken
        except TimeoutError:
            pass
        finally:
            self._loops.pop(loop, None)
            for fd in self._fds:
                loop.remove_reader(fd)
        return self.wait(0.0)

    def wake(self) -> None:
        """Ends the waits of event loops. From any thread."""
        for loop, woken in list(self._loops.items()):
            try:
                loop.call_soon_threadsafe(_set, woken)
            except RuntimeError:
                pass  # the loop has ended


def _set(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
