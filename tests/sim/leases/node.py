"""One node that runs programs of nested tasks in simulated time: the real lease queue and ledger, workers that only
count.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from runtime._core.lease_queue import GrantHere, LeaseQueue, NodeTable
from runtime._core.ledger import Allocation, Ledger
from runtime._core.placement import NodeView, Request
from runtime._core.resources import UNIT
from runtime._core.worker_cap import SchedulingClass

REQUEST = Request({"CPU": UNIT})
ENOUGH_EVENTS = 1_000_000


@dataclass(frozen=True)
class Compute:
    """Uses its CPU for so long."""

    seconds: float


@dataclass(frozen=True)
class Await:
    """Waits in `get` for something outside that takes so long, as the call of an actor."""

    seconds: float


@dataclass(eq=False)
class Barrier:
    """Waits in `get` until so many tasks have come to it."""

    count: int
    arrived: list[Callable[[], None]] = field(default_factory=list)


@dataclass(eq=False)
class Task:
    """A call of `function`. A list of tasks among its steps: it starts these and waits in `get` for all of them."""

    function: str
    steps: Sequence[Compute | Await | Barrier | list[Task]]
    depth: int = 1
    is_done: bool = False
    owner: Task | None = None
    left: int = 0
    """Children that are not done."""


class SimNode:
    """Runs programs.

    Attributes:
        now: the simulated time.
        ended_s: when the last task was done.
        peak: the most workers that were leased at once.
    """

    def __init__(self, cpus: int) -> None:
        self._ledger = Ledger({"CPU": cpus * UNIT})
        view = NodeView(b"here", self._ledger.total, self._ledger.available)
        self._queue = LeaseQueue(self._ledger, NodeTable(view), random.Random(0), 8)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._waiting: dict[tuple[Task | None, str], deque[Task]] = {}
        self._resume: dict[Task, Callable[[], None]] = {}
        self._live = 0
        self.now = 0.0
        self.ended_s = 0.0
        self.peak = 0

    def run(self, tasks: list[Task]) -> None:
        """Runs the tasks of a driver until nothing moves any more."""
        self._submit(None, tasks)
        for _ in range(ENOUGH_EVENTS):
            self._schedule()
            if not self._events:
                return
            self.now, _, act = heapq.heappop(self._events)
            act()
        raise AssertionError("it does not come to an end")

    def is_idle(self) -> bool:
        """Whether every worker and every CPU is back."""
        return (
            not self._live and self._ledger.available == self._ledger.total and not self._queue.cap.holds_any
        )

    def _at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), act))

    def _submit(self, owner: Task | None, tasks: list[Task]) -> None:
        for task in tasks:
            task.owner = owner
            task.depth = 1 if owner is None else owner.depth + 1
            self._waiting.setdefault((owner, task.function), deque()).append(task)
        for function in dict.fromkeys(task.function for task in tasks):
            self._demand(owner, function)

    def _demand(self, owner: Task | None, function: str) -> None:
        key = function.encode()
        depth = 1 if owner is None else owner.depth + 1
        self._queue.demand(
            owner,
            key,
            len(self._waiting[owner, function]),
            scheduling_class=SchedulingClass(b"job", depth, key),
            shape=b"one CPU",
            request=REQUEST,
            job_id=b"job",
            now=self.now,
        )

    def _schedule(self) -> None:
        while effects := self._queue.schedule(self.now):  # what begins may lend its CPU at once
            for effect in effects:
                assert isinstance(effect, GrantHere)
                self._live += 1
                self.peak = max(self.peak, self._live)
                self._queue.grant_ended(effect.waiting, True)
                owner = effect.waiting.owner
                assert owner is None or isinstance(owner, Task)
                self._next(owner, effect.waiting.scheduling_class, effect.allocation)
        if self._queue.look_again_s is not None:
            self._at(self._queue.look_again_s, lambda: None)

    def _next(self, owner: Task | None, which: SchedulingClass, allocation: Allocation) -> None:
        """The worker takes the owner's next task, or goes back."""
        waiting = self._waiting[owner, which.key.decode()]
        if not waiting:
            self._ledger.release(allocation)
            self._queue.ended(which, False)
            self._live -= 1
            return
        task = waiting.popleft()
        self._demand(owner, task.function)
        self._step(task, iter(task.steps), which, allocation)

    def _step(
        self,
        task: Task,
        steps: Iterator[Compute | Await | Barrier | list[Task]],
        which: SchedulingClass,
        allocation: Allocation,
    ) -> None:
        step = next(steps, None)
        if step is None:
            self._done(task)
            self._next(task.owner, which, allocation)
            return
        if isinstance(step, Compute):
            self._at(self.now + step.seconds, lambda: self._step(task, steps, which, allocation))
            return

        def go_on() -> None:
            self._ledger.unlend(allocation)
            self._step(task, steps, which, allocation)

        self._ledger.lend(allocation)
        if isinstance(step, Await):
            self._at(self.now + step.seconds, go_on)
        elif isinstance(step, Barrier):
            step.arrived.append(go_on)
            if len(step.arrived) == step.count:
                for each in step.arrived:
                    self._at(self.now, each)
        else:
            task.left = len(step)
            self._resume[task] = go_on
            self._submit(task, step)

    def _done(self, task: Task) -> None:
        task.is_done = True
        self.ended_s = self.now
        if task.owner is not None:
            task.owner.left -= 1
            if not task.owner.left:
                self._at(self.now, self._resume.pop(task.owner))
