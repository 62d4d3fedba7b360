"""A cluster of chance under the execution of a data set: tasks yield blocks of some sizes, pause, die and are slow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from runtime._controllers.controller import (
    Call,
    Cancel,
    Done,
    Effect,
    Event,
    Failed,
    Item,
    Key,
    ResultOf,
    Submit,
    Take,
)
from runtime.exceptions import NodeDiedError, ObjectReconstructionFailedError, WorkerCrashedError
from tests.sim.controllers.world import Chances, SimEngine
from tests.sim.events import Events


@dataclass(frozen=True)
class Shape:
    """What the tasks of a stage yield: `blocks` at most, each of up to `size_bytes`. Equal places, equal blocks."""

    name: str
    seed: int
    blocks: int
    size_bytes: int

    def of(self, order: tuple[int, ...]) -> list[int]:
        rng = random.Random(f"{self.name} {self.seed} {order}")
        return [
            rng.randint(self.size_bytes // 4, self.size_bytes) for _ in range(rng.randint(0, self.blocks))
        ]


@dataclass
class _Task:
    key: Key
    sizes: list[int]
    given: int = 0
    untaken: list[int] = field(default_factory=list)
    wanted: int = 0
    is_busy: bool = False
    dies_at: int | None = None


class DataEngine(SimEngine):
    """See `runtime._controllers.loop.Engine`. Streams pause as soon as one block was not taken."""

    def __init__(self, world: Events, chances: Chances) -> None:
        super().__init__(world, chances)
        self.sizes: dict[Key, int] = {}
        self.tasks: dict[Key, _Task] = {}
        self.task_blocks: dict[Key, int] = {}
        self.excess = 0
        self.budget = 0
        self.lost: set[Key] = set()

    @property
    def bytes_held(self) -> int:
        return sum(self.sizes.values()) + sum(sum(task.untaken) for task in self.tasks.values())

    def lose_one(self) -> None:
        """A block that lies somewhere is gone for good; a task that needs it fails."""
        found = sorted(key for key in self.sizes if key not in self.lost)
        if found:
            self.lost.add(self.world.rng.choice(found))

    def check(self) -> None:
        """What must hold after each event."""
        allowed = self.budget + sum(max(task.sizes, default=0) for task in self.tasks.values())
        self.excess = max(self.excess, self.bytes_held - allowed)

    def take(self, timeout_s: float | None) -> Sequence[Event]:
        if self.world.at_rest and not self._due and not self._interrupted:
            self.world.fail("nothing will ever happen again")
        return super().take(timeout_s)

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case Submit(key, _, args):
                self._begin(key)
                self._start(key, self.results[args[0].key], args[1:])
                self.check()
            case Take(key, items) if key in self.tasks:
                task = self.tasks[key]
                task.wanted += items
                self._step(task)
            case Cancel(key) if key in self.tasks:
                self._after(lambda: self._die_task(key, RuntimeError("cancelled")))
            case _:
                super().carry_out(effect)
                for gone in [key for key in self.sizes if key not in self.results]:
                    del self.sizes[gone]

    def _call(self, call: Call) -> None:
        self._begin(call.key)
        actor = self.actors.get(call.actor)
        if actor is None:
            self._after(lambda: self._finish(call.key, Failed(call.key, WorkerCrashedError("dead"))))
            return
        self._start(call.key, actor.program, call.args)  # type: ignore[attr-defined]

    def _start(self, key: Key, shape: Shape, args: Sequence[Any]) -> None:
        _, _, skip, order, *sources = args
        for source in sources:
            if isinstance(source, ResultOf) and source.key not in self.results:
                self.world.fail(f"the input {source.key} of {key} is gone")
            if isinstance(source, ResultOf) and source.key in self.lost:
                failed = Failed(key, ObjectReconstructionFailedError(repr(source.key)))
                self._after(partial(self._finish, key, failed))
                return
        sizes = shape.of(order)[skip:]
        task = self.tasks[key] = _Task(key, sizes)
        if self._happens(self.chances.call_fails):
            task.dies_at = self.world.rng.randint(0, len(sizes))
        self._step(task)

    def _step(self, task: _Task) -> None:
        while task.wanted and task.untaken:
            size, index = task.untaken.pop(0), task.given
            task.given += 1
            task.wanted -= 1
            self.results[task.key, index] = index
            self.sizes[task.key, index] = size
            self._due.append(Item(task.key, index, size, (), {"rows": 1, "bytes": size}))
        made = task.given + len(task.untaken)
        if (
            made == len(task.sizes)
            and not task.untaken
            and task.wanted
            and not task.is_busy
            and task.dies_at is None
        ):
            del self.tasks[task.key]
            self._finish(task.key, Done(task.key))
            return
        if task.is_busy or task.untaken or task.key not in self.tasks:
            return
        task.is_busy = True

        def make() -> None:
            task.is_busy = False
            if self.tasks.get(task.key) is not task:
                return
            done = task.given + len(task.untaken)
            if task.dies_at == done:
                self._die_task(task.key, NodeDiedError("chance"))
                return
            if done < len(task.sizes):
                task.untaken.append(task.sizes[done])
                self.check()
                self._step(task)
            elif task.wanted:
                self._step(task)

        self._after(make)

    def _die_task(self, key: Key, error: BaseException) -> None:
        if self.tasks.pop(key, None) is not None:
            self._finish(key, Failed(key, error))
