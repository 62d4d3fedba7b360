"""Tasks that wait give their CPUs to others meanwhile."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from runtime._core.worker_cap import is_lent
from runtime._owner.links import Links
from runtime._wire.messages.node import Blocked, Unblocked
from runtime._wire.messages.worker import Returned

from .assignment import Assignment
from .calls import Calls
from .main_thread import MainThread

log = logging.getLogger("runtime")
LEND_AFTER_S = 0.002
"""A task that waits longer than this lends its CPUs."""


class CpuLending:
    """Lends the CPUs of this process while a thread waits, until none does any more.

    Attributes:
        sends_back: whether tasks that come now go back to their submitter, as the one before them waits.
    """

    def __init__(self, links: Links, calls: Calls, assignment: Assignment, main: MainThread) -> None:
        self._links = links
        self._calls = calls
        self._assignment = assignment
        self._main = main
        self.sends_back = False
        self._warned = False
        self._waiting = {False: 0, True: 0}
        """How many threads wait and lend some, or the `whole`; guarded by the lock of the links."""

    def check_event_loop(self) -> None:
        """Warns, once, when the calling thread is about to wait while an event loop runs in it."""
        if self._assignment.is_async and not self._warned and asyncio._get_running_loop() is not None:
            self._warned = True
            log.warning(
                "Using blocking ray.get inside async actor. No other call of the actor goes on while its event loop "
                "waits: use `await` on the reference instead, or `asyncio.gather` for several."
            )

    def may_block(self) -> bool:
        """Whether the calling thread holds CPUs that it could lend while it waits."""
        return self._main.running is not None and threading.current_thread() is self._main.thread

    def blocking_wait(self, ready: Callable[[], Any], timeout_s: float | None) -> bool:
        """Waits; after a moment gives queued tasks back and lends the CPUs, so that what we wait for can run.

        Raises:
            KeyboardInterrupt: the task was cancelled.
        """
        links, main = self._links, self._main
        grace = LEND_AFTER_S if timeout_s is None else min(timeout_s, LEND_AFTER_S)

        def is_over() -> bool:
            return main.is_interrupted or bool(ready())

        main.hold_back()  # an interrupt between two lines would leave the CPUs lent, or the lead of the pump taken
        try:
            if links.pump.wait(is_over, grace):
                return True
            if timeout_s is not None and timeout_s <= grace:
                return False
            self._lend()
            try:
                return links.pump.wait(is_over, None if timeout_s is None else timeout_s - grace)
            finally:
                self._take_back()
        finally:
            main.let_through()

    @property
    def holds_cpus(self) -> bool:
        """Whether an actor, or a task that runs on the main thread, has CPUs."""
        lease = self._assignment.lease
        busy = self._assignment.setup is not None or self._main.running is not None
        return (
            busy
            and lease is not None
            and any(amount > 0 and is_lent(name) for name, amount in lease.resources.items())
        )

    @contextmanager
    def lent(self) -> Iterator[None]:
        """While the block runs, in any thread, others may use all CPUs, also those that an actor keeps while it waits.
        Then they are taken back at once, even if that oversubscribes the node for a while."""
        with self._links.lock:
            self._begin(whole=True)
        self._links.pump.kick()
        try:
            yield
        finally:
            with self._links.lock:
                self._end(whole=True)
            self._links.pump.kick()

    def _lend(self) -> None:
        with self._links.lock:
            if self._assignment.actor is None:
                self.sends_back = True
                for caller, task_ids in self._calls.take_back_all().items():
                    caller.send(Returned(task_ids, blocked=True))
            self._begin(whole=False)

    def _take_back(self) -> None:
        with self._links.lock:
            self.sends_back = False
            self._end(whole=False)

    def _begin(self, whole: bool) -> None:
        self._waiting[whole] += 1
        if self._waiting[whole] == 1:
            self._links.agent.send(Blocked(whole))

    def _end(self, whole: bool) -> None:
        self._waiting[whole] -= 1
        if self._waiting[whole] or (not whole and self._waiting[True]):
            return
        self._links.agent.send(Unblocked())
        if self._waiting[False]:  # the main thread's wait goes on, and lends what it did before
            self._links.agent.send(Blocked())
