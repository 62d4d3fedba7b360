"""What this process tells the controller of its queues, for autoscaling."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

import runtime
from runtime._extension.objects import ignore_errors
from runtime.serve._core.published import CONTROLLER, NAMESPACE, Demand, Targets

log = logging.getLogger(__name__)

PERIOD_S = 0.1
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
    """Tells when something has changed, at most every `PERIOD_S`. Belongs to the caller's loop.

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

    def close(self) -> None:
        """Tells nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _report(self) -> None:
        self._timer = None
        queued = {
            key: queue.waiting
            for key, queue in self._queues.items()
            if queue.waiting and queue.targets is not None and queue.targets.scales
        }
        if queued == self._told:
            return
        self._last_s = self._loop.time()
        try:
            self._tell(Demand(self._caller, queued))
            self._told = queued
        except Exception:
            log.warning("Cannot tell the controller how many requests wait", exc_info=True)
            self._timer = self._loop.call_later(10 * PERIOD_S, self._report)


class ControllerDemand:
    """Hands reports to the controller. The actor is looked up on a thread, since that takes a round trip."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._actor: Any = None
        self._latest: Demand | None = None
        self._looking: asyncio.Future[Any] | None = None

    def __call__(self, demand: Demand) -> None:
        """Sends the report, or the latest one as soon as the controller is found."""
        self._latest = demand
        if self._actor is not None:
            ignore_errors([self._actor.record_demand.remote(demand)])
        elif self._looking is None:
            self._looking = self._loop.run_in_executor(None, runtime.get_actor, CONTROLLER, NAMESPACE)
            self._looking.add_done_callback(self._found)

    def _found(self, looking: asyncio.Future[Any]) -> None:
        self._looking = None
        if looking.cancelled():
            return
        if (error := looking.exception()) is not None:
            log.warning("The controller of Serve is not there, so nothing scales up: %s", error)
            return
        self._actor = looking.result()
        if self._latest is not None:
            self(self._latest)
