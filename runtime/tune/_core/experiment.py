"""The controller of an experiment: brings trials and runners together. Pure.

Runners are actors with the resources of one trial. A trial that was chosen waits for a runner of its shape; as many
runners are wanted as trials wait. A runner ends with its trial, or takes the next one where runners are reused.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from runtime._controllers.controller import (
    ActorDied,
    ActorLost,
    ActorUp,
    Begin,
    Call,
    CreateActor,
    Done,
    Effect,
    Event,
    Failed,
    Forget,
    Key,
    Kill,
    Overdue,
    Perform,
    Reply,
    Requested,
    Sleep,
    Stop,
    TimerFired,
    Wait,
)
from runtime._core.fsm import Edge, Machine
from runtime.tune._api.exceptions import TuneError
from runtime.tune._api.resources import PlacementGroupFactory

from .messages import Assignment, Batch
from .study import Study
from .trial import Trial, TrialState

LOOK = "look"
"""The request for a view of the experiment."""
BUDGET, FLUSH, CPUS = "budget", "flush", "cpus"
"""Timers."""
FLUSH_S = 0.2
CPUS_S = 5.0
"""How often the CPUs of the cluster are looked for."""
LEAVE_LIMIT_S = 600.0
"""How long a trial may take to save a checkpoint and to clean up; then its process is ended."""


class RunnerState(Enum):
    PLACING = "PLACING"
    STARTING = "STARTING"
    IDLE = "IDLE"
    BUSY = "BUSY"
    LEAVING = "LEAVING"
    CLOSING = "CLOSING"
    DEAD = "DEAD"


class RunnerEvent(Enum):
    PLACED = "placement group made"
    UP = "constructor returned"
    GIVEN = "given a trial"
    HALTED = "its trial does not need it any more"
    FREE = "its trial is gone"
    CLOSED = "its object cleans up"
    DIED = "died"


_L, _S, _I = RunnerState.PLACING, RunnerState.STARTING, RunnerState.IDLE
_B, _V, _C, _D = RunnerState.BUSY, RunnerState.LEAVING, RunnerState.CLOSING, RunnerState.DEAD

TRANSITIONS: Final[Mapping[tuple[RunnerState, RunnerEvent], Edge[RunnerState]]] = {
    (_L, RunnerEvent.PLACED): Edge(_S, "its placement group is made"),
    (_L, RunnerEvent.DIED): Edge(_D, "its placement group could not be made, or no trial waits for it"),
    (_S, RunnerEvent.UP): Edge(_I, "its process is there"),
    (_S, RunnerEvent.DIED): Edge(_D, "its process ended before it was ready, or no trial waits for it"),
    (_I, RunnerEvent.GIVEN): Edge(_B, "it has a trial"),
    (_I, RunnerEvent.CLOSED): Edge(_C, "it is not needed any more, and has an object that cleans up"),
    (_I, RunnerEvent.DIED): Edge(_D, "its process ended, or it was not needed any more"),
    (_B, RunnerEvent.HALTED): Edge(_V, "its trial is to save a checkpoint, or to leave the process"),
    (_B, RunnerEvent.FREE): Edge(_I, "its trial has returned"),
    (_B, RunnerEvent.CLOSED): Edge(_C, "its trial has failed, and has an object that cleans up"),
    (_B, RunnerEvent.DIED): Edge(_D, "its process ended, or was ended with its trial"),
    (_V, RunnerEvent.FREE): Edge(_I, "its trial has left"),
    (_V, RunnerEvent.DIED): Edge(_D, "its process ended, or was ended with its trial"),
    (_C, RunnerEvent.DIED): Edge(_D, "its object has cleaned up, or its process ended"),
}


class Runner:
    """An actor that runs a trial.

    Attributes:
        number: its key is ("runner", number).
        calls: how many there were; the number is part of a call's key.
        earlier: the last call of an earlier trial: answers up to it are void.
        saves: calls of `save` that have not ended.
    """

    __slots__ = ("calls", "earlier", "factory", "group", "machine", "number", "saves", "since_s", "trial")

    def __init__(self, number: int, factory: PlacementGroupFactory, state: RunnerState, now: float) -> None:
        self.number = number
        self.factory = factory
        self.machine: Machine[RunnerState, RunnerEvent] = Machine(f"runner {number}", state, TRANSITIONS)
        self.trial: Trial | None = None
        self.group: Any = None
        self.calls = 0
        self.earlier = 0
        self.saves = 0
        self.since_s = now

    @property
    def key(self) -> Key:
        return "runner", self.number

    @property
    def state(self) -> RunnerState:
        return self.machine.state


class Setting(msgspec.Struct, frozen=True):
    """How an experiment uses the cluster.

    Attributes:
        runner: the class of the runners' actors.
        args: of their constructors.
        options_of: the options of an actor with these resources, in a placement group or None.
        place: makes a placement group, for more than one bundle.
        remove: removes a placement group.
        leaves: whether trials have objects that are told when they are done with, as classes are.
        reuses: whether a runner takes the next trial when its own has ended.
        most_waiting: how many trials wait for runners at most.
        most_running: how many trials have or want runners; 0: no limit.
        budget_s: after so long the experiment ends; None: never.
        ahead: how many results a trial may be ahead of the scheduler.
        view: what a look shows.
        cpus: called in a thread now and then: the CPUs of the cluster; None: they do not matter.
    """

    runner: Any
    args: tuple[Any, ...]
    options_of: Callable[[PlacementGroupFactory, Any], dict[str, Any]]
    place: Callable[[PlacementGroupFactory], Any]
    remove: Callable[[Any], None]
    leaves: bool = False
    reuses: bool = False
    most_waiting: int = 16
    most_running: int = 0
    budget_s: float | None = None
    ahead: int = 1
    view: Callable[[Study], Any] = lambda study: dict(study.counts)
    cpus: Callable[[], float] | None = None


class Experiment:
    """Runs a study to its end.

    Args:
        flush: called every `FLUSH_S` seconds and at the end.

    Attributes:
        groups: the placement groups that are to be removed, by the numbers of their runners.
    """

    def __init__(self, study: Study, setting: Setting, flush: Callable[[], None]) -> None:
        self.study = study
        self.groups: dict[int, Any] = {}
        self._setting = setting
        self._flush = flush
        self._runners: dict[int, Runner] = {}
        self._of: dict[Trial, Runner] = {}
        self._waiting: dict[tuple[Any, ...], deque[Trial]] = {}
        self._idle: dict[tuple[Any, ...], list[Runner]] = {}
        self._closing: dict[int, Runner] = {}
        self._coming: dict[tuple[Any, ...], int] = {}  # runners that are not up yet, by shape
        self._number = 0
        self._started_s = 0.0
        self._cpus = math.inf  # of the cluster
        self._cpus_each = 0.0  # of the trial that was begun last

    # ------------------------------------------------------------ the controller

    def step(self, event: Event, now: float) -> list[Effect]:
        effects: list[Effect] = []
        match event:
            case Begin():
                self._started_s = now
                effects += [Sleep(FLUSH, FLUSH_S), *self._look_for_cpus()]
                if self._setting.budget_s is not None:
                    effects.append(Sleep(BUDGET, self._setting.budget_s))
            case ActorUp(("runner", int(number))):
                self._up(number, effects, now)
            case Done(("place", int(number)), group):
                self._placed(number, group, effects)
            case Failed(("place", int(number)), error):
                self._lost(number, error, effects)
            case Done(("remove", int(number))) | Failed(("remove", int(number))):
                self.groups.pop(number, None)
            case Done((str(kind), int(number), int(call))) | Failed((str(kind), int(number), int(call))):
                runner = self._runners.get(number)
                if runner is not None and call > runner.earlier:
                    self._answered(kind, runner, event, effects, now)
            case ActorDied(("runner", int(number)), reason):
                self._lost(number, TuneError(f"The process of the trial ended: {reason}"), effects)
            case Overdue(Wait(("leave", int(number)))):
                self._overdue(number, effects)
            case ActorLost():
                pass  # runners do not restart
            case TimerFired("budget"):
                self.study.stop()
            case TimerFired("flush"):
                self._flush()
                effects.append(Sleep(FLUSH, FLUSH_S))
            case Done("cpus", cpus):
                self._cpus = cpus
            case TimerFired("cpus"):
                effects += self._look_for_cpus()
            case Requested(number):
                effects.append(Reply(number, self._setting.view(self.study)))
        if isinstance(event, Done | Failed):
            effects.append(Forget(event.key))
        self._settle(effects, now)
        return effects

    def waiting_for(self) -> list[Wait]:
        waits = []
        for shape, waiting in self._waiting.items():
            if waiting:
                needs = waiting[0].placement_group_factory.bundles
                waits.append(
                    Wait(shape, f"room for {len(waiting)} trials that need {needs}", self._started_s)
                )
        for trial, runner in self._of.items():
            if runner.state is RunnerState.LEAVING:
                key = "leave", runner.number
                waits.append(Wait(key, f"{trial} to save and clean up", runner.since_s, LEAVE_LIMIT_S))
                continue
            waits.append(Wait(trial.trial_id, f"the next result of {trial}", runner.since_s))
        for runner in self._closing.values():
            key = "leave", runner.number
            waits.append(Wait(key, "an object to clean up", runner.since_s, LEAVE_LIMIT_S))
        if not waits:
            searcher = type(self.study.rules.searcher).__name__
            waits.append(Wait("search", f"{searcher} to suggest a trial", self._started_s))
        return waits

    # ------------------------------------------------------------ after every event

    def _settle(self, effects: list[Effect], now: float) -> None:
        """Carries out what the study has decided, and begins what there is room for."""
        study = self.study
        while True:
            while study.halted or study.wanted:
                while study.halted:
                    self._halt(study.halted.pop(), effects)
                while study.wanted:
                    self._want(study.wanted.pop(), effects)
            if not self._begin_one():
                break
        for shape, waiting in self._waiting.items():
            if waiting:
                self._serve(shape, waiting, effects, now)
        if study.is_stopping or self._setting.reuses:
            self._spare(effects, now)
        if study.error is not None:
            effects.append(Stop(error=study.error))
        elif study.has_ended and not self.groups and not self._are_at_work():
            self._flush()
            effects.append(Stop(study.trials))
        elif study.is_stuck and not self._of:
            effects.append(
                Stop(
                    error=TuneError(
                        f"All {study.counts[TrialState.PAUSED]} trials that have not ended are paused, and the "
                        f"scheduler {type(study.rules.scheduler).__name__} chooses none of them."
                    )
                )
            )

    def _are_at_work(self) -> bool:
        """Whether placement groups are made, or trials that have ended leave."""
        at_work = (RunnerState.PLACING, RunnerState.LEAVING, RunnerState.CLOSING)
        return any(runner.state in at_work for runner in self._runners.values())

    def _begin_one(self) -> bool:
        """Has the scheduler choose a trial, if there is room for one more. Returns whether there is one."""
        setting, study = self._setting, self.study
        waiting, running = study.counts[TrialState.STARTING], study.counts[TrialState.RUNNING]
        # Trials that lend their CPUs, as those do that wait for a training, let others begin. Not without end.
        lending = max(0.0, running - self._cpus / self._cpus_each) if self._cpus_each else 0.0
        if waiting + lending >= setting.most_waiting:
            return False
        if setting.most_running and waiting + running >= setting.most_running:
            return False
        trial = study.choose(setting.most_waiting)
        if trial is None:
            return False
        factory = trial.placement_group_factory
        self._cpus_each = factory.required_resources.get("CPU", 0.0)
        self._waiting.setdefault(factory.shape, deque()).append(trial)
        return True

    def _look_for_cpus(self) -> list[Effect]:
        cpus = self._setting.cpus
        return [] if cpus is None else [Perform(CPUS, cpus), Sleep(CPUS, CPUS_S)]

    def _serve(
        self, shape: tuple[Any, ...], waiting: deque[Trial], effects: list[Effect], now: float
    ) -> None:
        """Gives waiting trials the runners that are idle, and has runners made for the others."""
        idle = self._idle.get(shape)
        while waiting and idle:
            self._give(idle.pop(), waiting.popleft(), effects, now)
        for _ in range(len(waiting) - self._coming.get(shape, 0)):
            self._create(waiting[0].placement_group_factory, effects, now)

    def _spare(self, effects: list[Effect], now: float) -> None:
        """Ends runners that no trial waits for."""
        for shape, idle in self._idle.items():
            if not self._waiting.get(shape):
                while idle:
                    self._close(idle.pop(), effects, now)

    # ------------------------------------------------------------ runners

    def _create(self, factory: PlacementGroupFactory, effects: list[Effect], now: float) -> None:
        has_group = len(factory.bundles) > 1
        runner = Runner(
            self._number, factory, RunnerState.PLACING if has_group else RunnerState.STARTING, now
        )
        self._number += 1
        self._runners[runner.number] = runner
        self._coming[factory.shape] = self._coming.get(factory.shape, 0) + 1
        if has_group:
            effects.append(Perform(("place", runner.number), self._setting.place, (factory,)))
        else:
            self._create_actor(runner, effects)

    def _placed(self, number: int, group: Any, effects: list[Effect]) -> None:
        self.groups[number] = group
        runner = self._runners.get(number)
        if runner is None:
            effects.append(Perform(("remove", number), self._setting.remove, (group,)))
            return
        runner.group = group
        runner.machine.step(RunnerEvent.PLACED)
        self._create_actor(runner, effects)

    def _create_actor(self, runner: Runner, effects: list[Effect]) -> None:
        setting = self._setting
        options = setting.options_of(runner.factory, runner.group)
        effects.append(CreateActor(runner.key, setting.runner, setting.args, options=options))

    def _up(self, number: int, effects: list[Effect], now: float) -> None:
        runner = self._runners.get(number)
        if runner is None or runner.state is not RunnerState.STARTING:
            return
        runner.machine.step(RunnerEvent.UP)
        self._coming[runner.factory.shape] -= 1
        waiting = self._waiting.get(runner.factory.shape)
        if waiting:
            self._give(runner, waiting.popleft(), effects, now)
        else:
            self._end(runner, effects)

    def _give(self, runner: Runner, trial: Trial, effects: list[Effect], now: float) -> None:
        runner.machine.step(RunnerEvent.GIVEN)
        runner.earlier, runner.saves = runner.calls, 0
        runner.trial, runner.since_s = trial, now
        self._of[trial] = runner
        self.study.started(trial)
        assignment = Assignment(
            trial_id=trial.trial_id,
            name=str(trial),
            config=trial.config,
            path=trial.custom_dirname,
            tag=trial.experiment_tag,
            resources=trial.placement_group_factory,
            beginning=trial.beginning,
            checkpoint_number=trial.checkpoint_number,
        )
        self._call("run", runner, "begin", (assignment, self._setting.ahead), effects)

    def _call(
        self, kind: str, runner: Runner, method: str, args: tuple[Any, ...], effects: list[Effect]
    ) -> None:
        runner.calls += 1
        effects.append(Call((kind, runner.number, runner.calls), runner.key, method, args, fetch=True))

    def _answered(
        self, kind: str, runner: Runner, event: Done | Failed, effects: list[Effect], now: float
    ) -> None:
        """A call of a runner has ended."""
        value = event.value if isinstance(event, Done) else None
        if kind == "save":
            self._saved(runner, value, effects)
        elif kind == "close":
            self._end(runner, effects)
        elif kind == "leave":
            has_left, saved = value or (False, None)
            if saved is not None and runner.trial is not None:
                self.study.saved(runner.trial, saved)
            if has_left:
                self._release(runner, effects)
            else:
                self._end(runner, effects)
        elif isinstance(event, Failed):
            self._failed(runner, event.error, effects, now)
        elif runner.state is RunnerState.BUSY:  # otherwise its trial was halted meanwhile
            assert isinstance(value, Batch)
            self._batch(runner, value, effects, now)

    def _batch(self, runner: Runner, batch: Batch, effects: list[Effect], now: float) -> None:
        trial = runner.trial
        assert trial is not None
        runner.since_s = now
        for result, saved in batch.results:
            self.study.result(trial, result, saved)
            if trial.state is not TrialState.RUNNING:
                return
        if batch.has_returned:
            self._release(runner, effects)
            self.study.completed(trial)
            self.study.halted.remove(trial)
        else:
            self._call("run", runner, "proceed", (self._setting.ahead,), effects)

    def _failed(self, runner: Runner, error: BaseException, effects: list[Effect], now: float) -> None:
        """A trial has failed."""
        trial = runner.trial
        if runner.state is not RunnerState.BUSY or trial is None:
            self._lost(runner.number, error, effects)
            return
        del self._of[trial]
        runner.trial = None
        self._close(runner, effects, now)
        self._mark_failed(trial, error)

    def _mark_failed(self, trial: Trial, error: BaseException) -> None:
        """Its runner is dealt with already."""
        self.study.failed(trial, error)
        if trial in self.study.halted:
            self.study.halted.remove(trial)

    def _close(self, runner: Runner, effects: list[Effect], now: float) -> None:
        """Ends a runner that has no trial any more, after its object has cleaned up."""
        if not self._setting.leaves:
            self._end(runner, effects)
            return
        runner.machine.step(RunnerEvent.CLOSED)
        runner.earlier, runner.since_s = runner.calls, now
        self._closing[runner.number] = runner
        self._call("close", runner, "close", (), effects)

    def _lost(self, number: int, error: BaseException, effects: list[Effect]) -> None:
        """A runner's process has ended."""
        runner = self._runners.get(number)
        if runner is None:
            return
        trial, is_coming = runner.trial, runner.state in (RunnerState.PLACING, RunnerState.STARTING)
        is_busy = runner.state is RunnerState.BUSY
        if runner.state is RunnerState.LEAVING and trial is not None:
            self.study.saved(trial, None)
        self._end(runner, effects)
        if is_coming:
            waiting = self._waiting.get(runner.factory.shape)
            trial = waiting.popleft() if waiting else None
        if trial is not None and (is_busy or is_coming):
            self._mark_failed(trial, error)

    def _halt(self, trial: Trial, effects: list[Effect]) -> None:
        """Takes a trial's runner, or its place among those that wait, away."""
        runner = self._of.get(trial)
        if runner is None:
            for waiting in self._waiting.values():
                if trial in waiting:
                    waiting.remove(trial)
            return
        if self.study.is_saving(trial):
            runner.machine.step(RunnerEvent.HALTED)
            self._save(runner, effects)
        else:
            self._dismiss(runner, effects)

    def _dismiss(self, runner: Runner, effects: list[Effect]) -> None:
        if self._setting.reuses or self._setting.leaves:
            if runner.state is RunnerState.BUSY:
                runner.machine.step(RunnerEvent.HALTED)
            has_ended = runner.trial is None or runner.trial.is_finished()
            self._call("leave", runner, "leave", (has_ended,), effects)
        else:
            self._end(runner, effects)

    def _want(self, trial: Trial, effects: list[Effect]) -> None:
        runner = self._of.get(trial)
        if runner is None or runner.state is not RunnerState.BUSY:
            self.study.saved(trial, None)
        else:
            self._save(runner, effects)

    def _save(self, runner: Runner, effects: list[Effect]) -> None:
        runner.saves += 1
        self._call("save", runner, "save", (), effects)

    def _saved(self, runner: Runner, saved: Any, effects: list[Effect]) -> None:
        runner.saves -= 1
        if runner.trial is None:
            return
        self.study.saved(runner.trial, saved, is_last=not runner.saves)
        if runner.state is RunnerState.LEAVING and not runner.saves:
            self._dismiss(runner, effects)

    def _overdue(self, number: int, effects: list[Effect]) -> None:
        """A trial takes too long to leave its process."""
        runner = self._runners.get(number)
        if runner is not None:
            if runner.trial is not None:
                self.study.saved(runner.trial, None)
            self._end(runner, effects)

    def _release(self, runner: Runner, effects: list[Effect]) -> None:
        """A runner's trial is gone."""
        if not self._setting.reuses:
            self._end(runner, effects)
            return
        if (
            runner.trial is not None and self._of.get(runner.trial) is runner
        ):  # it may be with another one already
            del self._of[runner.trial]
        runner.trial = None
        runner.machine.step(RunnerEvent.FREE)
        self._idle.setdefault(runner.factory.shape, []).append(runner)

    def _end(self, runner: Runner, effects: list[Effect]) -> None:
        if runner.state in (RunnerState.PLACING, RunnerState.STARTING):
            self._coming[runner.factory.shape] -= 1
        idle = self._idle.get(runner.factory.shape)
        if idle and runner in idle:
            idle.remove(runner)
        if runner.state is not RunnerState.PLACING:
            effects.append(Kill(runner.key))
        runner.machine.step(RunnerEvent.DIED)
        if runner.trial is not None and self._of.get(runner.trial) is runner:
            del self._of[runner.trial]
        del self._runners[runner.number]
        self._closing.pop(runner.number, None)
        if runner.group is not None:
            effects.append(Perform(("remove", runner.number), self._setting.remove, (runner.group,)))
