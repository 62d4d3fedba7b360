"""Waits for descriptors until a deadline: in a thread, or in an event loop."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Iterable, Mapping

Ready = Mapping[int, int]
"""Descriptors that are readable, with what `poll` says of them."""


def deadline_of(timeout_s: float | None) -> float | None:
    """The monotonic time at which a wait ends; None: no limit."""
    return None if timeout_s is None else time.monotonic() + timeout_s


def left_ms(deadline: float) -> int:
    """Milliseconds until a deadline, rounded up."""
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
        self._together: select.epoll | None = None  # of all descriptors: an event loop watches only this one
        self._loops: dict[asyncio.AbstractEventLoop, asyncio.Future[None]] = {}

    def wait(self, deadline: float | None) -> Ready:
        """The readable ones; none: the deadline has passed. Blocks the thread."""
        return dict(self._poll.poll(None if deadline is None else left_ms(deadline)))

    async def wait_async(self, deadline: float | None) -> Ready:
        """The same for an event loop; one waiter at a time."""
        ready = self.wait(0.0)
        if ready:
            return ready
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        if self._together is None:
            self._together = select.epoll()
            for fd in self._fds:
                self._together.register(fd, select.EPOLLIN)
        fd = self._together.fileno()
        loop.add_reader(fd, _set, woken)
        self._loops[loop] = woken
        try:
            if deadline is None:
                await woken
            else:
                async with asyncio.timeout_at(loop.time() + deadline - time.monotonic()):
                    await woken
        except TimeoutError:
            pass
        finally:
            self._loops.pop(loop, None)
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
