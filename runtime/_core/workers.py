"""The worker processes of a node: their states, who may use which, and which ones are too many. Pure.

A worker belongs to one job and one runtime environment for life; the pool is keyed by both.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import msgspec

from .fsm import Edge, Machine, Transitions

PoolKey = tuple[bytes, str]
"""Job id and runtime environment (JSON, "" for none)."""


class WorkerState(enum.Enum):
    STARTING = "STARTING"
    IDLE = "IDLE"
    LEASED = "LEASED"
    ACTOR = "ACTOR"
    STOPPING = "STOPPING"
    DEAD = "DEAD"


class WorkerEvent(enum.Enum):
    REGISTER = "REGISTER"
    LEASE = "LEASE"
    RETURN = "RETURN"
    BECOME_ACTOR = "BECOME_ACTOR"
    STOP = "STOP"
    EXIT = "EXIT"


_S, _E = WorkerState, WorkerEvent
TRANSITIONS: Transitions[WorkerState, WorkerEvent] = {
    (_S.STARTING, _E.REGISTER): Edge(_S.IDLE, "the forked process connected with its token"),
    (_S.STARTING, _E.STOP): Edge(_S.STOPPING, "its job ended before it came up"),
    (_S.STARTING, _E.EXIT): Edge(_S.DEAD, "the process ended before it connected"),
    (_S.IDLE, _E.LEASE): Edge(_S.LEASED, "an owner was granted a lease"),
    (_S.IDLE, _E.BECOME_ACTOR): Edge(_S.ACTOR, "an actor's constructor was sent"),
    (_S.IDLE, _E.STOP): Edge(_S.STOPPING, "idle for too long, or its job ended"),
    (_S.IDLE, _E.EXIT): Edge(_S.DEAD, "the process ended"),
    (_S.LEASED, _E.RETURN): Edge(_S.IDLE, "the owner gave the lease back"),
    (_S.LEASED, _E.STOP): Edge(_S.STOPPING, "the owner died or discarded it, or its job ended"),
    (_S.LEASED, _E.EXIT): Edge(_S.DEAD, "the process ended"),
    (_S.ACTOR, _E.STOP): Edge(_S.STOPPING, "the actor was killed, or its job ended"),
    (_S.ACTOR, _E.EXIT): Edge(_S.DEAD, "the process ended"),
    (_S.STOPPING, _E.EXIT): Edge(_S.DEAD, "the signal took effect"),
}


class Worker:
    """One worker process. `channel`, `host` and `use` belong to the caller: its connection, what forked it, and what it
    is leased to."""

    __slots__ = (
        "actor_id",
        "channel",
        "devices",
        "host",
        "idle_since",
        "key",
        "machine",
        "pid",
        "retiring",
        "stop_intended",
        "stop_reason",
        "token",
        "unix_path",
        "use",
        "used",
        "worker_id",
    )

    def __init__(self, worker_id: bytes, token: int, key: PoolKey) -> None:
        self.worker_id = worker_id
        self.token = token
        self.key = key
        self.machine: Machine[WorkerState, WorkerEvent] = Machine(
            f"worker {worker_id.hex()[:12]}", WorkerState.STARTING, TRANSITIONS
        )
        self.pid = 0
        self.unix_path = ""
        self.idle_since = 0.0
        self.actor_id = b""
        self.retiring = False  # it ends by itself after what it does now
        self.used = False  # it has run tasks, and may own what they made
        self.devices: tuple[str, ...] = ()  # kinds of accelerators of its tasks, if `used`
        self.stop_reason = ""
        self.stop_intended = False
        self.channel: Any = None
        self.host: Any = None
        self.use: Any = None

    @property
    def job_id(self) -> bytes:
        return self.key[0]

    @property
    def state(self) -> WorkerState:
        return self.machine.state


class PoolCounts(msgspec.Struct, frozen=True):
    starting: int
    idle: int
    busy: int


class WorkerTable:
    """All workers of a node that are not dead, and the idle ones by key, the warmest last."""

    def __init__(self) -> None:
        self._by_token: dict[int, Worker] = {}
        self._by_id: dict[bytes, Worker] = {}
        self._idle: dict[PoolKey, list[Worker]] = {}
        self._starting: dict[PoolKey, int] = {}
        self._tokens = 0

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, worker_id: bytes, key: PoolKey) -> Worker:
        """A process is being started."""
        self._tokens += 1
        worker = Worker(worker_id, self._tokens, key)
        self._by_token[worker.token] = worker
        self._by_id[worker_id] = worker
        self._starting[key] = self._starting.get(key, 0) + 1
        return worker

    def by_token(self, token: int) -> Worker | None:
        return self._by_token.get(token)

    def get(self, worker_id: bytes) -> Worker | None:
        return self._by_id.get(worker_id)

    def starting(self, key: PoolKey) -> int:
        """How many processes of this key are on their way."""
        return self._starting.get(key, 0)

    def registered(self, worker: Worker, now: float) -> None:
        self._leave_starting(worker)
        worker.machine.step(WorkerEvent.REGISTER, now)
        self._make_idle(worker, now)

    def has_idle(self, key: PoolKey) -> bool:
        return key in self._idle

    def take(
        self, key: PoolKey, event: WorkerEvent, now: float, devices: tuple[str, ...] = ()
    ) -> Worker | None:
        """Takes the idle worker of `key` that was used last, for a lease with accelerators of these kinds; an actor
        (`event`) gets one that was never used: what tasks had made there would go with the actor. So does a lease if
        all were used with other kinds: a library looks for devices once in a process.
        """
        idle = self._idle.get(key, ())
        for worker in reversed(idle):
            if not worker.used or (event is not WorkerEvent.BECOME_ACTOR and worker.devices == devices):
                self._leave_idle(worker)
                worker.devices = devices
                worker.machine.step(event, now)
                return worker
        return None

    def give_back(self, worker: Worker, now: float) -> None:
        """A leased worker is free again; one that is about to end stays as it is until it has."""
        worker.use = None
        worker.used = True
        if worker.retiring:
            return
        worker.machine.step(WorkerEvent.RETURN, now)
        self._make_idle(worker, now)

    def stopping(self, worker: Worker, reason: str, intended: bool, now: float) -> bool:
        """Its end was decided. False when that was so before."""
        if not worker.machine.can(WorkerEvent.STOP):
            return False
        self._leave_idle(worker)
        self._leave_starting(worker)
        worker.stop_reason, worker.stop_intended = reason, intended
        worker.machine.step(WorkerEvent.STOP, now)
        return True

    def died(self, worker: Worker, now: float) -> None:
        """The process is gone; the table forgets it."""
        self._leave_idle(worker)
        self._leave_starting(worker)
        worker.machine.step(WorkerEvent.EXIT, now)
        self._by_token.pop(worker.token, None)
        self._by_id.pop(worker.worker_id, None)

    def surplus(self, keep: int, idle_s: float, now: float) -> list[Worker]:
        """Workers that have been idle for `idle_s`, the longest idle first, as far as idle and leased workers together
        are more than `keep`."""
        idle = [worker for workers in self._idle.values() for worker in workers]
        excess = self._excess(len(idle), keep)
        if excess <= 0:
            return []
        idle.sort(key=lambda worker: worker.idle_since)
        return [w for w in idle[:excess] if now - w.idle_since >= idle_s]

    def _excess(self, idle_count: int, keep: int) -> int:
        return idle_count and idle_count + self._leased_count() - keep

    def _leased_count(self) -> int:
        return sum(worker.state is WorkerState.LEASED for worker in self._by_id.values())

    def stale(self, idle_s: float, now: float) -> list[Worker]:
        """Idle workers of environments of their own (not their job's) that have been idle for `idle_s`."""
        return [
            worker
            for key, workers in self._idle.items()
            if key[1]
            for worker in workers
            if now - worker.idle_since >= idle_s
        ]

    def changes_with_time(self, keep: int) -> bool:
        """Whether a worker may be surplus or stale later on, or is not up yet, without anything else happening."""
        idle = sum(len(workers) for workers in self._idle.values())
        return bool(self._starting) or self._excess(idle, keep) > 0 or any(key[1] for key in self._idle)

    def of_job(self, job_id: bytes) -> list[Worker]:
        return [worker for worker in self._by_id.values() if worker.job_id == job_id]

    def counts(self) -> PoolCounts:
        starting = sum(self._starting.values())
        idle = sum(len(workers) for workers in self._idle.values())
        return PoolCounts(starting, idle, len(self._by_id) - starting - idle)

    def _make_idle(self, worker: Worker, now: float) -> None:
        worker.idle_since = now
        self._idle.setdefault(worker.key, []).append(worker)

    def _leave_starting(self, worker: Worker) -> None:
        if worker.state is WorkerState.STARTING:
            left = self._starting[worker.key] - 1
            if left:
                self._starting[worker.key] = left
            else:
                del self._starting[worker.key]

    def _leave_idle(self, worker: Worker) -> None:
        idle = self._idle.get(worker.key)
        if idle and worker in idle:
            idle.remove(worker)
            if not idle:
                del self._idle[worker.key]
