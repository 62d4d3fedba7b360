"""Experiments on a virtual clock: searcher, scheduler, stopper and experiment are the real ones, trials are curves."""

from __future__ import annotations

import heapq
import inspect
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from runtime._controllers.controller import (
    ActorDied,
    ActorUp,
    Call,
    CreateActor,
    Done,
    Effect,
    Event,
    Failed,
    Forget,
    Key,
    Kill,
    Perform,
)
from runtime._controllers.loop import Loop
from runtime.tune._api.resources import PlacementGroupFactory
from runtime.tune._api.result_grid import ResultGrid
from runtime.tune._core.experiment import Experiment, Setting
from runtime.tune._core.messages import Assignment, Batch
from runtime.tune._core.study import Keeper, Study
from runtime.tune._core.trial import Saved

START = 1_700_000_000.0
"""The virtual time of the beginning, in seconds since 1970."""
Curve = Callable[..., "dict[str, Any] | None"]


class PointInTime(msgspec.Struct, frozen=True):
    """Stands for a checkpoint."""

    path: str


class SimulatedGrid(ResultGrid):
    """The results of a simulation. `seconds`: how long it would have taken. `busy`: the share of the workers' time in
    which they had a trial."""

    seconds: float
    busy: float


class Worker:
    """A virtual runner."""

    __slots__ = ("assignment", "began_s", "iteration", "key", "previous", "sequence", "total_s")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.assignment: Assignment | None = None
        self.iteration = 0
        self.total_s = 0.0
        self.previous: dict[str, Any] | None = None
        self.sequence = 0
        self.began_s = 0.0


class VirtualCluster:
    """A cluster of workers that each run one trial at a time. See `loop.Engine`.

    Args:
        curve: called with a configuration and an iteration (from 1), and with the metrics of the iteration before if it
            takes three arguments. Returns the metrics of the iteration, or None: the trial ends before it. A metric
            `time_this_iter_s` says how long it takes; a second, where there is none.
        workers: how many.
        start_s: how long the start of a worker takes; to save a checkpoint, or to leave a trial, takes as long.
        saves_always: whether each result comes with a checkpoint, as from a function; otherwise they are saved when the
            experiment says so, as by a class.
    """

    def __init__(self, curve: Curve, workers: int, start_s: float = 0.0, saves_always: bool = True) -> None:
        self.busy_s = 0.0
        self._curve = curve
        self._takes_previous = _takes_three(curve)
        self._free = workers
        self._start_s = start_s
        self._saves_always = saves_always
        self._now = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Event]] = []
        self._workers: dict[Key, Worker] = {}
        self._queue: deque[Key] = deque()  # actors that wait for a worker

    # ------------------------------------------------------------ see `Engine`

    def now(self) -> float:
        return self._now

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case CreateActor(key):
                self._queue.append(key)
                self._fill()
            case Call():
                self._call(effect)
            case Kill(key):
                self._kill(key)
            case Perform(key, function, args):
                self._later(0.0, Done(key, function(*args)))
            case Forget():
                pass
            case _:
                raise TypeError(f"{type(effect).__name__} is no effect of a simulation")

    def take(self, timeout_s: float | None) -> Sequence[Event]:
        if self._due and (timeout_s is None or self._due[0][0] <= self._now + timeout_s):
            self._now, _, event = heapq.heappop(self._due)
            return [event]
        if timeout_s is None:
            raise RuntimeError("The simulation waits for an event that will never come.")
        self._now += timeout_s
        return []

    def resolve(self, value: Any) -> Any:
        return value

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        for worker in self._workers.values():
            self.busy_s += self._now - worker.began_s

    # ------------------------------------------------------------ workers

    def _later(self, after_s: float, event: Event) -> None:
        heapq.heappush(self._due, (self._now + after_s, next(self._order), event))

    def _fill(self) -> None:
        while self._free and self._queue:
            key = self._queue.popleft()
            self._free -= 1
            worker = self._workers[key] = Worker(key)
            worker.began_s = self._now
            self._later(self._start_s, ActorUp(key))

    def _kill(self, key: Key) -> None:
        worker = self._workers.pop(key, None)
        if worker is not None:
            self.busy_s += self._now - worker.began_s
            self._free += 1
        elif key in self._queue:
            self._queue.remove(key)
        self._later(0.0, ActorDied(key, "killed"))
        self._fill()

    def _call(self, call: Call) -> None:
        worker = self._workers[call.actor]
        if call.method == "close":
            self._later(self._start_s, Done(call.key))
            return
        if call.method == "leave":
            worker.assignment = None
            self._later(self._start_s, Done(call.key, (True, None)))
            return
        if call.method == "save":
            self._later(self._start_s, Done(call.key, self._saved(worker)))
            return
        if call.method == "begin":
            self._begin(worker, call.args[0])
        try:
            batch, took_s = self._run(worker, call.args[-1])
        except Exception as error:
            self._later(0.0, Failed(call.key, error))
        else:
            self._later(took_s, Done(call.key, batch))

    def _begin(self, worker: Worker, assignment: Assignment) -> None:
        worker.assignment = assignment
        beginning = assignment.beginning
        worker.iteration = beginning.iteration if beginning else 0
        worker.total_s = beginning.time_total_s if beginning else 0.0
        worker.previous = beginning.metrics if beginning else None
        worker.sequence = assignment.checkpoint_number

    def _saved(self, worker: Worker) -> Saved:
        assert worker.assignment is not None
        point = PointInTime(f"{worker.assignment.path}/checkpoint_{worker.sequence:06d}")
        worker.sequence += 1
        return Saved(point.path, point, worker.previous or {}, worker.iteration, worker.total_s)

    def _run(self, worker: Worker, ahead: int) -> tuple[Batch, float]:
        """What a worker tells next, and how long that takes."""
        assignment = worker.assignment
        assert assignment is not None
        took_s = 0.0
        results: list[tuple[dict[str, Any], Saved | None]] = []
        for _ in range(ahead):
            arguments = [assignment.config, worker.iteration + 1]
            metrics = self._curve(*arguments, *([worker.previous] if self._takes_previous else []))
            if metrics is None:
                return Batch(results, has_returned=True), took_s
            iteration_s = float(metrics.get("time_this_iter_s", 1.0))
            took_s += iteration_s
            worker.iteration += 1
            worker.total_s += iteration_s
            worker.previous = metrics
            saved = self._saved(worker) if self._saves_always else None
            result = {
                "timestamp": int(START + self._now + took_s),
                "done": False,
                "training_iteration": worker.iteration,
                "trial_id": assignment.trial_id,
                "time_total_s": worker.total_s,
                "time_this_iter_s": iteration_s,
                **metrics,
            }
            results.append((result, saved))
        return Batch(results), took_s


def simulate(
    study: Study, setting: Setting, keeper: Keeper, curve: Curve, workers: int, start_s: float
) -> VirtualCluster:
    """Runs a study to its end on a virtual clock."""
    cluster = VirtualCluster(curve, workers, start_s)
    study.replay((), keeper)
    Loop(Experiment(study, setting, lambda: None), cluster, "simulated experiment", float("inf")).run()
    return cluster


def options_of(_factory: PlacementGroupFactory, _group: Any) -> dict[str, Any]:
    """Virtual workers have no options."""
    return {}


def _takes_three(curve: Curve) -> bool:
    try:
        parameters = inspect.signature(curve).parameters.values()
    except ValueError:
        return False
    return sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters) >= 3
