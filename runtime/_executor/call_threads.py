"""The threads of a threaded actor. Calls wait in one queue for whichever thread is free.

A thread that begins a call wakes the next one if more calls wait, so that at most one is on its way up at any time:
to wake a thread for each call would have all of them fight for the interpreter, one switch a call.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

log = logging.getLogger("runtime")


class CallThreads:
    """Up to `limit` threads that run `run(*call)` for what `submit` brings, in that order. They never end."""

    def __init__(self, limit: int, name: str, run: Callable[..., None]) -> None:
        self._limit = limit
        self._name = name
        self._run = run
        self._calls: deque[tuple[Any, ...]] = deque()
        self._idle: deque[threading.Lock] = deque()  # of the threads that wait: each waits for its own
        self._count = 0
        self._waking = False  # a thread is on its way to the queue, and will look for everything in it
        self._lock = threading.Lock()

    @property
    def backlog(self) -> bool:
        """Whether calls wait for a thread."""
        return bool(self._calls)

    @property
    def waiting(self) -> deque[tuple[Any, ...]]:
        """A copy of the calls that no thread has taken."""
        return self._calls.copy()

    def submit(self, *call: Any) -> None:
        """Queues a call. From one thread at a time."""
        self._calls.append(call)
        if not self._waking:
            self._wake_one()

    def clear(self) -> list[tuple[Any, ...]]:
        """Takes back the calls that wait; those that a thread has taken run."""
        waiting = []
        while self._calls:
            try:
                waiting.append(self._calls.popleft())
            except IndexError:
                break  # a thread was faster
        return waiting

    def _wake_one(self) -> None:
        with self._lock:
            try:
                idle = self._idle.pop()
            except IndexError:
                if self._count == self._limit:
                    return  # all are at work, and look here when they are done
                self._count += 1
                self._waking = True
                threading.Thread(target=self._serve, name=f"{self._name}_{self._count}", daemon=True).start()
            else:
                self._waking = True
                idle.release()

    def _serve(self) -> None:
        woken = threading.Lock()
        woken.acquire()
        while True:
            self._waking = False  # before we look: what comes later wakes another thread
            try:
                call = self._calls.popleft()
            except IndexError:
                self._idle.append(woken)
                if self._calls and self._withdrawn(woken):  # came before we were seen to be idle
                    continue
                woken.acquire()
                continue
            if self._calls and not self._waking:
                self._wake_one()
            try:
                self._run(*call)
            except Exception:
                log.exception("a call was not answered")
            del call

    def _withdrawn(self, woken: threading.Lock) -> bool:
        try:
            self._idle.remove(woken)
        except ValueError:
            return False  # somebody is waking us already
        return True
