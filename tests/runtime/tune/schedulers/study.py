"""A study in simulated time: a controller as schedulers see it, `workers` workers, and trials that follow curves."""

from __future__ import annotations

import copy
import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from runtime.tune.schedulers import TrialScheduler

PENDING, STARTING, RUNNING, PAUSED = "PENDING", "STARTING", "RUNNING", "PAUSED"
TERMINATED, ERROR = "TERMINATED", "ERROR"
Advance = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
"""(config, state): changes the state by one step, returns what is reported."""


@dataclass(frozen=True)
class Bundles:
    """The part of PlacementGroupFactory that schedulers use."""

    bundles: list[dict[str, float]]
    strategy: str = "PACK"

    @property
    def required_resources(self) -> dict[str, float]:
        names = {name for bundle in self.bundles for name in bundle}
        return {name: sum(bundle.get(name, 0) for bundle in self.bundles) for name in names}


@dataclass(eq=False)
class SimulatedTrial:
    trial_id: str
    config: dict[str, Any]
    placement_group_factory: Bundles = field(default_factory=lambda: Bundles([{"CPU": 1.0}]))
    status: str = PENDING
    last_result: dict[str, Any] = field(default_factory=dict)
    experiment_tag: str = ""
    evaluated_params: dict[str, Any] = field(default_factory=dict)
    checkpoint: dict[str, Any] | None = None
    state: dict[str, Any] = field(default_factory=dict)
    run: int = 0
    configs: list[dict[str, Any]] = field(default_factory=list)

    def is_finished(self) -> bool:
        return self.status in (TERMINATED, ERROR)


class Study:
    """Runs trials on a virtual clock.

    Args:
        scheduler: under test.
        configs: of the trials; each is created when it may be needed: `ahead` of them wait for a worker.
        advance: the curve.
        workers: trials that run at once.
        iterations: a trial ends by itself after so many steps.
        seed: of the durations of steps.
        failures: probability that a trial fails in a step.
        ahead: trials that are created before a worker is free.
        queue: trials that are chosen before a worker is free; they are STARTING until then.
        cpus: of the cluster.
        saves_paused: whether trials can be saved when they are paused.
        slow_saves: whether saving takes time, during which the trial is not ready.
        retries: whether trials that fail are tried again, from their last checkpoint.
        search_alg: what `search_alg` says.
    """

    def __init__(
        self,
        scheduler: TrialScheduler,
        configs: Iterator[dict[str, Any]] | list[dict[str, Any]],
        advance: Advance,
        *,
        workers: int = 4,
        iterations: int = 100,
        seed: int = 0,
        failures: float = 0.0,
        ahead: int = 1,
        cpus: float = 8.0,
        queue: int = 0,
        saves_paused: bool = True,
        slow_saves: bool = False,
        retries: bool = False,
        search_alg: Any = None,
    ) -> None:
        self.scheduler = scheduler
        self.search_alg = search_alg
        self.trials: list[SimulatedTrial] = []
        self.lines: dict[str, list[str]] = {}
        self.decisions: list[tuple[str, int, str]] = []
        self.exploits: list[tuple[str, str, dict[str, Any]]] = []
        self.listings = 0
        self.now = 0.0
        self.running = 0
        self.most_running = 0
        self._configs = iter(configs)
        self._advance = advance
        self._workers = workers
        self._iterations = iterations
        self._random = random.Random(seed)
        self._failures = failures
        self._ahead = ahead
        self._cpus = cpus
        self._saves_paused = saves_paused
        self._slow_saves = slow_saves
        self._retries = retries
        self._queue = queue
        self._starting: deque[SimulatedTrial] = deque()
        self._held: set[SimulatedTrial] = set()
        self._pending: deque[SimulatedTrial] = deque()
        self._paused: dict[SimulatedTrial, None] = {}
        self._events: list[tuple[float, int, SimulatedTrial, int]] = []
        self._event_number = 0
        self._pending_count = 0

    # ---- the controller ----

    def get_trials(self) -> list[SimulatedTrial]:
        self.listings += 1
        return list(self.trials)

    def get_live_trials(self) -> set[SimulatedTrial]:
        self.listings += 1
        return {trial for trial in self.trials if not trial.is_finished()}

    def next_pending(self) -> SimulatedTrial | None:
        while self._pending and self._pending[0].status != PENDING:
            self._pending.popleft()
        return self._pending[0] if self._pending else None

    def next_paused(self) -> SimulatedTrial | None:
        return next((trial for trial in self._paused if trial not in self._held), None)

    def others_wait(self) -> bool:
        return bool(self._pending_count or self._starting or self._paused)

    def is_ready(self, trial: SimulatedTrial) -> bool:
        return trial.status in (PENDING, PAUSED) and trial not in self._held

    def stop_trial(self, trial: SimulatedTrial) -> None:
        if trial.is_finished():
            return
        was_running = trial.status == RUNNING
        self._leave(trial, TERMINATED)
        if was_running:
            self.scheduler.on_trial_complete(self, trial, trial.last_result)
        else:
            self.scheduler.on_trial_remove(self, trial)

    def pause_trial(self, trial: SimulatedTrial, should_checkpoint: bool = True) -> None:
        assert trial.status == RUNNING
        if should_checkpoint and self._saves_paused:
            trial.checkpoint = copy.deepcopy(trial.state)
        self._leave(trial, PAUSED)
        if should_checkpoint and self._saves_paused:
            self._hold(trial)

    def _hold(self, trial: SimulatedTrial) -> None:
        """The trial's checkpoint is complete a moment later."""
        if self._slow_saves:
            self._held.add(trial)
            self._event_number += 1
            heapq.heappush(
                self._events, (self.now + self._random.uniform(0, 2), self._event_number, trial, -1)
            )

    def exploit(
        self, trial: SimulatedTrial, donor: SimulatedTrial, config: dict[str, Any], experiment_tag: str = ""
    ) -> bool:
        assert trial.status in (RUNNING, PAUSED)
        if donor.status == RUNNING and self._saves_paused:
            donor.checkpoint = copy.deepcopy(donor.state)
        if donor.checkpoint is None:
            return False
        self.exploits.append((trial.trial_id, donor.trial_id, copy.deepcopy(config)))
        trial.config = config
        trial.experiment_tag = experiment_tag
        trial.checkpoint = copy.deepcopy(donor.checkpoint)
        if trial.status == RUNNING:
            self._leave(trial, PAUSED)
        if donor.status == RUNNING:
            self._hold(trial)
        return True

    def set_resources(self, trial: SimulatedTrial, placement_group_factory: Bundles) -> None:
        trial.placement_group_factory = placement_group_factory
        if trial.status == RUNNING:
            trial.checkpoint = copy.deepcopy(trial.state)
            self._restart(trial)

    def total_resources(self) -> dict[str, float]:
        return {"CPU": self._cpus, "GPU": 3.0}

    def log_line(self, file_name: str, text: str) -> None:
        self.lines.setdefault(file_name, []).append(text)

    # ---- the loop ----

    def run(self, on_event: Callable[[Study], None] | None = None) -> Study:
        """Runs until nothing runs or waits. A trial that is never run again fails the test."""
        self._fill()
        while self._events:
            self.now, _, trial, run = heapq.heappop(self._events)
            if run == -1:
                self._held.discard(trial)
            elif trial.run == run and trial.status == RUNNING:
                if on_event is not None:
                    on_event(self)
                self._step(trial)
            self._fill()
        stuck = [trial for trial in self.trials if not trial.is_finished()]
        assert not stuck, f"{len(stuck)} trials were never run to their end: {stuck[:3]}"
        return self

    def _fill(self) -> None:
        while True:
            self._ask()
            while self._starting and self.running < self._workers:
                self._start(self._starting.popleft())
            if self.running + len(self._starting) >= self._workers + self._queue:
                return
            chosen = self.scheduler.choose_trial_to_run(self)
            if chosen is not self.scheduler.choose_trial_to_run(self):
                raise AssertionError("choose_trial_to_run is not idempotent")
            if chosen is None:
                return
            assert self.is_ready(chosen), f"{chosen.trial_id} is {chosen.status} and not ready"
            if chosen.status == PENDING:
                self._pending_count -= 1
            self._paused.pop(chosen, None)
            chosen.status = STARTING
            self._starting.append(chosen)

    def _ask(self) -> None:
        while self._pending_count < self._ahead:
            config = next(self._configs, None)
            if config is None:
                return
            trial = SimulatedTrial(f"t{len(self.trials)}", config, experiment_tag=str(len(self.trials)))
            self.trials.append(trial)
            self._pending.append(trial)
            self._pending_count += 1
            self.scheduler.on_trial_add(self, trial)
            trial.configs.append(copy.deepcopy(trial.config))

    def _start(self, trial: SimulatedTrial) -> None:
        trial.status = RUNNING
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self._restart(trial)

    def _restart(self, trial: SimulatedTrial) -> None:
        trial.state = (
            copy.deepcopy(trial.checkpoint) if trial.checkpoint is not None else {"step": 0, "time": 0.0}
        )
        self._schedule(trial)

    def _schedule(self, trial: SimulatedTrial) -> None:
        trial.run += 1
        self._event_number += 1
        duration = self._random.uniform(0.5, 1.5)
        heapq.heappush(self._events, (self.now + duration, self._event_number, trial, trial.run))

    def _leave(self, trial: SimulatedTrial, status: str) -> None:
        if trial.status == RUNNING:
            self.running -= 1
        if trial.status == PENDING:
            self._pending_count -= 1
        if trial.status == STARTING:
            self._starting.remove(trial)
        self._paused.pop(trial, None)
        self._held.discard(trial)
        if status == PAUSED:
            self._paused[trial] = None
        trial.status = status

    def _step(self, trial: SimulatedTrial) -> None:
        if self._random.random() < self._failures:
            if self._retries:
                self._leave(trial, PENDING)
                self._pending.appendleft(trial)
                self._pending_count += 1
                return
            self._leave(trial, ERROR)
            self.scheduler.on_trial_error(self, trial)
            return
        state = trial.state
        state["step"] += 1
        state["time"] += self._random.uniform(0.5, 1.5)
        result = self._advance(trial.config, state)
        result = {"training_iteration": state["step"], "time_total_s": state["time"], **result}
        trial.last_result = result
        if state["step"] >= self._iterations:
            self._leave(trial, TERMINATED)
            self.scheduler.on_trial_complete(self, trial, result)
            return
        decision = self.scheduler.on_trial_result(self, trial, result)
        self.decisions.append((trial.trial_id, state["step"], decision))
        if decision == TrialScheduler.STOP:
            self._leave(trial, TERMINATED)
            # Controllers may or may not confirm the end that a scheduler has ordered.
            if self._random.random() < 0.5:
                self.scheduler.on_trial_complete(self, trial, result)
        elif decision == TrialScheduler.PAUSE:
            self.pause_trial(trial)
        elif decision == TrialScheduler.CONTINUE:
            self._schedule(trial)
        else:
            assert decision == TrialScheduler.NOOP


def random_curve(seed: int) -> Advance:
    """Curves without any shape: each (config["x"], step) has its own random value."""

    def advance(config: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        return {"score": random.Random(f"{seed}/{config['x']}/{state['step']}").random()}

    return advance


def configs(count: int) -> list[dict[str, Any]]:
    return [{"x": number} for number in range(count)]
