"""Threads that load values and call the program back with them: both run user code, which may block.

A few threads do all the work. When none of them takes a job for a moment although some wait, they are stuck in user
code, and one more thread joins; so a callback that blocks delays others, and never stops them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from runtime._transport.failures import report

USUAL = 4
"""How many threads work while none is stuck."""
STUCK_S = 0.05
"""Without progress for this long, another thread joins."""


class LoadingThreads:
    """Runs jobs, roughly in order. Its threads are daemons: a stuck one does not hold up the end of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards everything here
        self._news = threading.Condition(self._lock)  # for idle threads
        self._end = threading.Condition(self._lock)
        self._jobs: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._idle = 0  # those that wait and were not woken
        self._taken = 0  # jobs so far: it grows while there is progress
        self._watched = False  # a thread waits to see whether the others are stuck
        self._closed = False

    def submit(self, job: Callable[[], None]) -> None:
        """Has a job run on some thread. Never blocks."""
        with self._lock:
            self._jobs.append(job)
            self._call_one()

    def close(self) -> None:
        """Ends the threads when no job is left. No job is dropped: a future that waits for one gets its error."""
        with self._lock:
            self._closed = True
            self._idle = 0
            self._news.notify_all()
            self._end.notify_all()

    def _call_one(self) -> None:
        """Jobs wait: sees to it that some thread comes for them."""
        if self._idle:
            self._idle -= 1
            self._news.notify()
        elif self._threads < USUAL:
            self._start(self._work)
        elif not self._watched:
            self._watched = True
            self._start(self._watch)

    def _start(self, target: Callable[[], None]) -> None:
        self._threads += 1
        threading.Thread(target=target, name="load", daemon=True).start()

    def _watch(self) -> None:
        """Works too once the others are stuck; until then it only looks."""
        with self._lock:
            while self._jobs:
                before = self._taken
                self._end.wait(STUCK_S)
                if self._taken == before:
                    break
            self._watched = False
        self._work()

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._jobs:
                    if self._closed or self._threads > USUAL:
                        self._threads -= 1
                        return
                    self._idle += 1
                    self._news.wait()
                job = self._jobs.popleft()
                self._taken += 1
                if self._jobs:
                    self._call_one()
            try:
                job()
            except BaseException:
                report("a job that loads a value")
            del job
