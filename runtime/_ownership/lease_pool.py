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
FEW_LEASES = 8
"""Up to this number of leases, scanning them costs less than keeping them sorted."""
EXACT_EVERY_S = 0.25
"""What is asked for may be half of what is wanted for this long."""


class Lease:
    """A leased worker. `inflight`: pushed tasks by id, in order. `connection` and the tasks are opaque here.

    After a change of `inflight`, `blocked` or `leaving`, call `LeasePool.changed`.
    """

    __slots__ = (
        "blocked",
        "connection",
        "idle_since",
        "inflight",
        "last_done",
        "lease_id",
        "leaving",
        "listed",
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
        self.listed = -1  # by how many tasks its pool knows it; -1: it takes no more
        self.idle_since = now
        self.last_done: float | None = now
        """When its last task ended; None: an idle worker got a task, and `stuck` has not looked since."""


class LeasePool:
    """Everything of one scheduling class: same resources, strategy and environment."""

    __slots__ = (
        "__weakref__",
        "_by_load",
        "_cancelled",
        "_least",
        "asked",
        "average_s",
        "cancelled_count",
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
        """What waits. The first is never a cancelled task: who takes it calls `drop_cancelled` if there are any."""
        self.cancelled_count = 0
        """How many of the queue were cancelled."""
        self._cancelled: dict[Any, int] = {}  # these; how often each
        self.leases: dict[Lease, None] = {}
        # If they are many: those that take more tasks, by how many they have. Nobody has fewer than `_least`.
        self._by_load: list[dict[Lease, None]] | None = None
        self._least = 0
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

    # ------------------------------------------------------------ workers

    def add(self, lease: Lease) -> None:
        """A worker was granted."""
        self.leases[lease] = None
        if self._by_load is None and len(self.leases) > FEW_LEASES:
            self._by_load = []
            for each in self.leases:
                self.changed(each)
        else:
            self.changed(lease)

    def remove(self, lease: Lease) -> None:
        """The worker is given back, or gone."""
        del self.leases[lease]
        lease.leaving = True
        self.changed(lease)
        if self._by_load is not None and len(self.leases) <= FEW_LEASES // 2:
            self._by_load = None
            self._least = 0
            for each in self.leases:
                each.listed = -1

    def changed(self, lease: Lease) -> None:
        """The worker got or ended a task, or takes more tasks (no more) from now on."""
        by_load = self._by_load
        if by_load is None:
            return
        load = -1 if lease.blocked or lease.leaving else len(lease.inflight)
        before = lease.listed
        if load == before:
            return
        lease.listed = load
        if before >= 0:
            del by_load[before][lease]
        if load >= 0:
            while len(by_load) <= load:
                by_load.append({})
            by_load[load][lease] = None
            if load < self._least:
                self._least = load

    def take(self) -> Lease | None:
        """The worker with the least to do that has room, or None. The caller gives it a task, or calls `changed`. Of
        several idle ones it is always the same one: the others may go back."""
        by_load, least = self._by_load, self._least
        if by_load is None:
            return self._search()
        end = len(by_load)
        while least < end and not by_load[least]:
            least += 1
        self._least = least
        if least == end or (least and least >= self.depth()):
            return None
        lease, _ = by_load[least].popitem()
        lease.listed = least = least + 1
        if least == end:
            by_load.append({})
        by_load[least][lease] = None
        return lease

    def _search(self) -> Lease | None:
        best, least = None, self.depth()
        for lease in self.leases:
            if len(lease.inflight) < least and not (lease.blocked or lease.leaving):
                best, least = lease, len(lease.inflight)
                if not least:
                    break
        return best

    def refills(self, lease: Lease) -> bool:
        """A worker has ended a task while others wait: whether it is the one to get the next (see `take`), as it mostly
        is. Nothing is moved then. Else this is `changed`."""
        if self._by_load is None:
            return False
        load = len(lease.inflight)
        if load + 1 == lease.listed and load <= self._least and (not load or load < self.depth()):
            return True
        self.changed(lease)
        return False

    def fullest(self) -> Lease | None:
        """The worker with the most tasks of those that take more."""
        by_load = self._by_load
        if by_load is None:
            open_ = (lease for lease in self.leases if not (lease.blocked or lease.leaving))
            return max(open_, key=lambda lease: len(lease.inflight), default=None)
        while by_load and not by_load[-1]:
            del by_load[-1]
        self._least = min(self._least, len(by_load))
        return next(iter(by_load[-1])) if by_load else None

    # ------------------------------------------------------------ what waits

    def cancel(self, task: Any) -> None:
        """A task that waits is not to run. It stays in the queue for a while: to search it there would take long."""
        self._cancelled[task] = self._cancelled.get(task, 0) + 1
        self.cancelled_count += 1
        self.drop_cancelled()
        if self.cancelled_count * 2 > len(self.queue):
            waiting = self.queue.copy()
            self.queue.clear()
            for each in waiting:
                if not self._was_cancelled(each):
                    self.queue.append(each)

    def take_all(self) -> list[Any]:
        """Takes every task that waits."""
        tasks = []
        while self.queue:
            tasks.append(self.queue.popleft())
            self.drop_cancelled()
        return tasks

    def drop_cancelled(self) -> None:
        """Drops cancelled tasks from the front of the queue."""
        queue = self.queue
        while queue and self._was_cancelled(queue[0]):
            queue.popleft()

    def _was_cancelled(self, task: Any) -> bool:
        """Whether this place in the queue is one that was cancelled; it goes then."""
        times = self._cancelled.get(task)
        if times is None:
            return False
        if times > 1:
            self._cancelled[task] = times - 1
        else:
            del self._cancelled[task]
        self.cancelled_count -= 1
        return True

    # ------------------------------------------------------------ demand

    def wanted(self) -> int:
        """How many more workers the queue is worth."""
        waiting = len(self.queue) - self.cancelled_count
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
        """Workers whose running task hides queued ones for longer than tasks of this class usually take. A push
        reads no clock: the time of the first one counts from the first look."""
        limit = max(STUCK_MIN_S, STUCK_FACTOR * (self.average_s or 0.0))
        found = []
        for lease in self.leases:
            if len(lease.inflight) > 1 and not lease.taking_back:
                if lease.last_done is None:
                    lease.last_done = now
                elif now - lease.last_done > limit:
                    found.append(lease)
        return found

    def idle(self, now: float) -> list[Lease]:
        """Workers to give back."""
        if self.queue:
            return []
        return [
            lease
            for lease in self.leases
            if not lease.inflight and (self.once or now - lease.idle_since >= IDLE_LEASE_S)
        ]
