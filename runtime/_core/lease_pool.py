"""An owner's leased workers of one scheduling class, and its tasks that wait for them. Pure.

Deep pushes while tasks are short, shallow when they are long: the depth follows the running average of the time a task
takes, so that a worker always has the next task at hand and a long task never hides much queued work behind it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

QUEUE_AHEAD_S = 0.01
"""How much work to keep at a worker."""
MAX_DEPTH = 1000
WORK_PER_LEASE_S = 0.05
"""Another worker is worth asking for when there is this much work for it."""
AVERAGE_WEIGHT = 0.2
STUCK_FACTOR = 20
STUCK_MIN_S = 0.01
IDLE_LEASE_S = 0.05
EXACT_EVERY_S = 0.25
"""What is asked for may be half of what is wanted for this long."""


class Lease:
    """A leased worker. `inflight`: pushed tasks by id, in order. `connection` and the tasks are opaque here."""

    __slots__ = (
        "blocked",
        "connection",
        "idle_since",
        "inflight",
        "last_done",
        "lease_id",
        "leaving",
        "pool",
        "taking_back",
        "worker",
    )

    def __init__(self, lease_id: bytes, worker: Any, pool: LeasePool, now: float) -> None:
        self.lease_id = lease_id
        self.worker = worker
        self.pool = pool
        self.connection: Any = None
        self.inflight: dict[bytes, Any] = {}
        self.blocked = False
        self.taking_back = False
        self.leaving = False  # others wait for it: it goes back after the task that runs
        self.idle_since = now
        self.last_done = now


class LeasePool:
    """Everything of one scheduling class: same resources, strategy and environment."""

    __slots__ = (
        "asked",
        "average_s",
        "exact_at",
        "key",
        "leases",
        "name",
        "once",
        "queue",
        "request",
        "runtime_env",
        "strict",
    )

    def __init__(
        self, key: bytes, request: Any, runtime_env: str, name: str, strict: bool = False, once: bool = False
    ) -> None:
        self.key = key
        self.request = request
        self.runtime_env = runtime_env
        self.name = name
        self.strict = strict
        """One task at a time per worker: none may run twice because its neighbour killed the worker."""
        self.once = once
        """A worker for each task: every task is to be placed anew."""
        self.queue: deque[Any] = deque()
        self.leases: list[Lease] = []
        self.asked = 0
        self.exact_at = 0.0
        self.average_s: float | None = None

    def copy(self, key: bytes) -> LeasePool:
        """An empty pool of the same kind."""
        return LeasePool(key, self.request, self.runtime_env, self.name, self.strict, self.once)

    def depth(self) -> int:
        """How many tasks to keep at one worker."""
        if self.strict or self.once or self.average_s is None:
            return 1
        if self.average_s <= QUEUE_AHEAD_S / MAX_DEPTH:
            return MAX_DEPTH
        return max(1, int(QUEUE_AHEAD_S / self.average_s))

    def learned(self, seconds: float) -> None:
        """A task took this long."""
        if self.average_s is None:
            self.average_s = seconds
        else:
            self.average_s += AVERAGE_WEIGHT * (seconds - self.average_s)

    def pick(self) -> Lease | None:
        """The worker with the least to do that has room, or None."""
        best, least = None, self.depth()
        for lease in self.leases:
            if len(lease.inflight) < least and not (lease.blocked or lease.leaving):
                best, least = lease, len(lease.inflight)
                if not least:
                    break
        return best

    def wanted(self) -> int:
        """How many more workers the queue is worth."""
        waiting = len(self.queue)
        if not waiting or self.average_s is None or self.strict or self.once:
            return waiting
        return min(waiting, max(1, int(waiting * self.average_s / WORK_PER_LEASE_S)))

    def demand(self) -> int | None:
        """The number to ask the agent for, or None while the last number asked is near enough."""
        wanted = self.wanted()
        if wanted == self.asked:
            return None
        if self.asked and wanted and self.asked * 0.5 <= wanted <= self.asked * 1.5:
            return None
        self.asked = wanted
        return wanted

    def exact_demand(self, now: float) -> int | None:
        """The number to ask for, near or not, if it is another: what waits decides how many machines are launched."""
        wanted = self.wanted()
        if wanted == self.asked or now - self.exact_at < EXACT_EVERY_S:
            return None
        self.exact_at = now
        self.asked = wanted
        return wanted

    def stuck(self, now: float) -> list[Lease]:
        """Workers whose running task hides queued ones for longer than tasks of this class usually take."""
        limit = max(STUCK_MIN_S, STUCK_FACTOR * (self.average_s or 0.0))
        return [
            lease
            for lease in self.leases
            if len(lease.inflight) > 1 and not lease.taking_back and now - lease.last_done > limit
        ]

    def idle(self, now: float) -> list[Lease]:
        """Workers to give back."""
        if self.queue:
            return []
        return [
            lease
            for lease in self.leases
            if not lease.inflight and (self.once or now - lease.idle_since >= IDLE_LEASE_S)
        ]
