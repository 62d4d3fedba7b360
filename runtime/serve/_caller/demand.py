"""What this process tells the controller of its queues, for autoscaling."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import runtime
from runtime.serve._core.published import CONTROLLER, NAMESPACE, REPEAT_S, Demand, Targets

log = logging.getLogger(__name__)

PERIOD_S = 0.1
ANSWER_S = 10.0
"""How long the controller may take to answer a report."""
RETRY_S = 1.0
Tell = Callable[[Demand], None]


class Demanding(Protocol):
    """A queue, as far as it matters here."""

    @property
    def app(self) -> str:
        """The application."""

    @property
    def deployment(self) -> str:
        """The deployment."""

    @property
    def waiting(self) -> int:
        """How many requests wait."""

    @property
    def targets(self) -> Targets | None:
        """What the controller said last."""


class DemandReporter:
    """Tells when something has changed, at most every `PERIOD_S`, and again every `REPEAT_S` while requests wait.
    Belongs to the caller's loop.

    Args:
        caller: names this process.
        tell: hands a report over without waiting. What it raises is logged, and the report is repeated.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, caller: str, tell: Tell) -> None:
        self._loop = loop
        self._caller = caller
        self._tell = tell
        self._queues: dict[tuple[str, str], Demanding] = {}
        self._told: dict[tuple[str, str], int] = {}
        self._timer: asyncio.Handle | None = None
        self._repetition: asyncio.TimerHandle | None = None
        self._last_s = -PERIOD_S

    def changed(self, queue: Demanding) -> None:
        """Another number of requests may wait in a queue."""
        self._queues[queue.app, queue.deployment] = queue
        if self._timer is None:
            left_s = self._last_s + PERIOD_S - self._loop.time()
            if left_s > 0:
                self._timer = self._loop.call_later(left_s, self._report)
            else:
                self._timer = self._loop.call_soon(self._report)

    def drop(self, queue: Demanding) -> None:
        """Nothing waits in a queue, and nothing will."""
        if self._queues.get((queue.app, queue.deployment)) is queue:
            del self._queues[queue.app, queue.deployment]

    def close(self) -> None:
        """Tells nothing any more."""
        for timer in (self._timer, self._repetition):
            if timer is not None:
                timer.cancel()

    def _report(self, again: bool = False) -> None:
        if not again:
            self._timer = None
        queued = {
            key: queue.waiting
            for key, queue in self._queues.items()
            if queue.waiting and queue.targets is not None and queue.targets.scales
        }
        if queued == self._told and not (again and queued):
            return
        self._last_s = self._loop.time()
        if self._repetition is not None:
            self._repetition.cancel()
        self._repetition = self._loop.call_later(REPEAT_S, self._report, True) if queued else None
        try:
            self._tell(Demand(self._caller, queued))
            self._told = queued
        except Exception:
            log.warning("Cannot tell the controller how many requests wait", exc_info=True)
            if self._timer is None:
                self._timer = self._loop.call_later(RETRY_S, self._report)


class ControllerDemand:
    """Hands the latest report to the controller, and again while requests wait and the controller cannot be reached.

    Args:
        spawn: runs a coroutine on the caller's loop.
    """

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._spawn = spawn
        self._actor: Any = None
        self._latest: Demand | None = None
        self._is_sending = False

    def __call__(self, demand: Demand) -> None:
        """Sends the report soon."""
        self._latest = demand
        if not self._is_sending:
            self._is_sending = True
            self._spawn(self._send())

    async def _send(self) -> None:
        try:
            while self._latest is not None:
                demand, self._latest = self._latest, None
                try:
                    async with asyncio.timeout(ANSWER_S):
                        if self._actor is None:  # the look-up takes a round trip
                            self._actor = await asyncio.to_thread(runtime.get_actor, CONTROLLER, NAMESPACE)
                        await self._actor.record_demand.remote(demand)
                except Exception as error:  # another controller may have taken the name
                    self._actor = None
                    if demand.queued:
                        log.warning("The controller of Serve does not hear that requests wait: %r", error)
                        await asyncio.sleep(RETRY_S)
                        self._latest = self._latest or demand
        finally:
            self._is_sending = False
