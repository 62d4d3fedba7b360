"""The metric of requests that wait in this process. Requests that find a slot at once cost nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from runtime.util import metrics

RECORD_S = 0.5


class MeasuredQueue(Protocol):
    """A queue."""

    app: str
    deployment: str

    @property
    def waiting(self) -> int:
        """How many requests wait."""


class QueueMeasures:
    """Of all queues of one caller. On its loop.

    Args:
        caller: its name.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, caller: str) -> None:
        self._loop = loop
        self._caller = caller
        self._changed: set[MeasuredQueue] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._set: Callable[[float, dict[str, str]], None] | None = None

    def changed(self, queue: MeasuredQueue) -> None:
        """Requests wait there, or no longer."""
        self._changed.add(queue)
        if self._timer is None:
            self._timer = self._loop.call_later(RECORD_S, self._record)

    def close(self) -> None:
        """Records nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _record(self) -> None:
        self._timer = None
        if self._set is None:
            gauge = metrics.Gauge(
                "serve_deployment_queued_queries",
                "Requests to a deployment that wait in a process for a replica.",
                ("application", "deployment", "handle"),
            )
            self._set = gauge.set
        queues, self._changed = self._changed, set()
        for queue in queues:
            waiting = queue.waiting
            tags = {"application": queue.app, "deployment": queue.deployment, "handle": self._caller}
            self._set(waiting, tags)
            if waiting:
                self.changed(queue)
