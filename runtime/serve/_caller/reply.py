"""Answers that any thread and any event loop can wait for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from runtime.serve._event_loops import running_loop

from .exchange import Answer


class Signal:
    """Tells all that wait. No lock is needed: a waiter enters its waker first and looks afterwards, the teller changes
    the state first and wakes afterwards, and the operations of a deque are atomic."""

    __slots__ = ("_wakers",)

    def __init__(self) -> None:
        self._wakers: deque[Callable[[], object]] = deque()

    def tell(self) -> None:
        """Wakes all."""
        wakers = self._wakers
        while wakers:
            try:
                waker = wakers.popleft()
            except IndexError:
                return
            waker()

    def wait(self, is_there: Callable[[], object], timeout_s: float | None) -> bool:
        """Blocks the thread until `is_there()` or the time is over; whether it is there."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not is_there():
            lock = threading.Lock()
            lock.acquire()
            waker = lock.release
            self._wakers.append(waker)
            if is_there():
                return True
            # It may be woken by what another call of `wait` has taken already.
            if deadline_s is None:
                lock.acquire()
            elif not lock.acquire(
                timeout=max(0.0, min(deadline_s - time.monotonic(), threading.TIMEOUT_MAX))
            ):
                self._withdraw(waker)
                return bool(is_there())
        return True

    async def arrival(self, is_there: Callable[[], object]) -> None:
        """Waits on the running loop until `is_there()`."""
        while not is_there():
            loop = asyncio.get_running_loop()
            came = loop.create_future()
            waker = partial(_wake, loop, came)
            self._wakers.append(waker)
            if not is_there():
                try:
                    await came
                except asyncio.CancelledError:
                    self._withdraw(waker)
                    raise

    def _withdraw(self, waker: Callable[[], object]) -> None:
        """Who waits no more is not told: many may ask for an answer that comes late, again and again."""
        with suppress(ValueError):  # it was told just now
            self._wakers.remove(waker)


def _wake(loop: asyncio.AbstractEventLoop, came: asyncio.Future[None]) -> None:
    if running_loop() is loop:
        _come(came)
        return
    try:
        loop.call_soon_threadsafe(_come, came)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _come(came: asyncio.Future[None]) -> None:
    if not came.done():
        came.set_result(None)


class Reply:
    """The one message, or error, that answers a call."""

    __slots__ = ("_signal", "outcome")

    def __init__(self) -> None:
        self.outcome: Answer | BaseException | None = None
        self._signal = Signal()

    def settle(self, outcome: Answer | BaseException) -> None:
        """The answer is there. The first one counts."""
        if self.outcome is None:
            self.outcome = outcome
            self._signal.tell()

    def wait(self, timeout_s: float | None) -> Answer | BaseException:
        """Blocks the thread.

        Raises:
            TimeoutError: there is no answer in time.
        """
        if self.outcome is None and not self._signal.wait(lambda: self.outcome is not None, timeout_s):
            raise TimeoutError
        assert self.outcome is not None
        return self.outcome

    async def arrival(self) -> Answer | BaseException:
        """Waits on the running loop."""
        if self.outcome is None:
            await self._signal.arrival(lambda: self.outcome is not None)
        assert self.outcome is not None
        return self.outcome


class Stream:
    """Messages that answer a call, for one consumer."""

    __slots__ = ("_came", "_signal")

    def __init__(self) -> None:
        self._came: deque[Answer | BaseException] = deque()
        self._signal = Signal()

    def add(self, message: Answer | BaseException) -> None:
        """The next message is there."""
        self._came.append(message)
        self._signal.tell()

    def take(self) -> Answer | BaseException:
        """Blocks the thread until there is a message, and takes it."""
        if not self._came:
            self._signal.wait(lambda: self._came, None)
        return self._came.popleft()

    async def arrival(self) -> Answer | BaseException:
        """The same on the running loop."""
        if not self._came:
            await self._signal.arrival(lambda: self._came)
        return self._came.popleft()
