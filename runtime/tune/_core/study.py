"""The trials of an experiment, and what searcher, scheduler and stopper make of them. Pure.

The same code decides in a cluster, in a simulation, and when the journal is replayed. The cost of an event does not
depend on the number of trials.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from runtime.train._core import retention
from runtime.tune._api.config import ResumeConfig, ResumeType
from runtime.tune._api.exceptions import TuneError
from runtime.tune._api.resources import PlacementGroupFactory

from . import records
from .names import Naming
from .trial import Saved, Trial, TrialEvent, TrialState

PAUSE, STOP = "PAUSE", "STOP"
"""What a scheduler may say to a result, besides CONTINUE and NOOP."""


class Keeper(Protocol):
    """What is told of everything, and writes it down."""

    def write(self, record: records.Record) -> None:
        """Appends to the journal."""

    def tell(self, what: str, trial: Trial, **info: Any) -> None:
        """Calls the callbacks' method of this name for a trial."""

    def delete(self, trial: Trial, saved: Saved) -> None:
        """Removes a checkpoint."""

    def log_line(self, file_name: str, text: str) -> None:
        """Appends a line to a file of the experiment's folder."""


class Rules(msgspec.Struct, frozen=True):
    """How an experiment is run.

    Attributes:
        searcher: suggests configurations.
        scheduler: stops, pauses and changes trials.
        stops: whether a trial ends with a result: called with its id and the result.
        stops_all: whether the experiment ends.
        resources_of: the resources of a configuration.
        naming: of trials and folders.
        max_failures: of one trial; -1: without a limit.
        fail_fast: whether the first trial that fails for good ends the experiment; "raise": with its error.
        num_to_keep, score_attribute, score_order: which checkpoints of a trial are kept.
        num_samples: how many trials the searcher is asked for; None: until it says that it has finished.
        metric, mode: which result is the best; None: nobody says.
        saves: whether the trainable can be told to save a checkpoint, as classes can.
        total_resources: of the cluster, for schedulers that divide them.
    """

    searcher: Any
    scheduler: Any
    stops: Callable[[str, dict[str, Any]], bool]
    stops_all: Callable[[], bool]
    resources_of: Callable[[dict[str, Any]], PlacementGroupFactory]
    naming: Naming
    max_failures: int = 0
    fail_fast: bool | str = False
    num_to_keep: int | None = None
    score_attribute: str | None = None
    score_order: str = "max"
    num_samples: int | None = None
    metric: str | None = None
    mode: str = "max"
    saves: bool = False
    total_resources: Callable[[], dict[str, float]] = dict


class Study:
    """The trials. Schedulers get it as the first argument of their methods.

    Attributes:
        trials: all of them, in the order of creation.
        halted: those that had, or waited for, a runner and do not need it any more; `Experiment` takes them away.
        wanted: trials whose next checkpoint others wait for; `Experiment` has them saved.
        is_stopping: no trial is begun any more.
        error: ends the experiment.
        best: the best value of the metric so far, and its trial.
    """

    def __init__(self, rules: Rules, keeper: Keeper) -> None:
        self.rules = rules
        self.trials: list[Trial] = []
        self.halted: list[Trial] = []
        self.wanted: list[Trial] = []
        self.is_stopping = False
        self.error: BaseException | None = None
        self.best: tuple[Any, Trial] | None = None
        self.counts = dict.fromkeys(TrialState, 0)
        self._keeper = keeper
        self._pending: deque[Trial] = deque()
        self._paused: deque[Trial] = deque()
        self._live: dict[Trial, None] = {}
        self._saving: set[Trial] = set()  # paused; their checkpoint is not complete yet
        self._awaiting: set[Trial] = (
            set()
        )  # paused; the checkpoint of the trial that they copy is not complete yet
        self._copies: dict[Trial, list[tuple[Trial, dict[str, Any], str]]] = {}  # by the trial that is copied
        self._borrowed: dict[str, int] = {}  # paths of checkpoints that a trial of another begins with
        self._is_exhausted = False
        self._is_replay = False

    # ------------------------------------------------------------ what schedulers call

    @property
    def search_alg(self) -> Any:
        """The searcher."""
        return self.rules.searcher

    def get_trials(self) -> list[Trial]:
        """All trials, also those that have ended."""
        return self.trials

    def get_live_trials(self) -> set[Trial]:
        """Those that have not ended."""
        return set(self._live)

    def live_trials(self) -> Iterable[Trial]:
        """Those that have not ended, in the order of creation."""
        return self._live

    def next_pending(self) -> Trial | None:
        """The trial that has waited longest for its beginning."""
        return self._first(self._pending, TrialState.PENDING)

    def next_paused(self) -> Trial | None:
        """The trial that has been paused longest."""
        return self._first(self._paused, TrialState.PAUSED)

    def others_wait(self) -> bool:
        """Whether trials wait for a runner, or to be chosen."""
        counts = self.counts
        return bool(counts[TrialState.PENDING] + counts[TrialState.STARTING] + counts[TrialState.PAUSED])

    def is_ready(self, trial: Trial) -> bool:
        """Whether a trial can be chosen to run: it is pending or paused, and its checkpoint is complete."""
        return trial.state in (TrialState.PENDING, TrialState.PAUSED) and not self._is_held(trial)

    def total_resources(self) -> dict[str, float]:
        """The resources of the cluster."""
        return self.rules.total_resources()

    def log_line(self, file_name: str, text: str) -> None:
        """Appends a line to a file of the experiment's folder."""
        if not self._is_replay:
            self._keeper.log_line(file_name, text)

    def stop_trial(self, trial: Trial) -> None:
        """Ends a trial that has not ended."""
        if not trial.is_finished() and not self._is_replay:
            self._end(trial, records.STOPPED)

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        """Takes a trial's runner away until the scheduler chooses it again."""
        if not (trial.is_finished() or trial.state is TrialState.PAUSED or self._is_replay):
            self._pause(trial, should_checkpoint)

    def exploit(self, trial: Trial, donor: Trial, config: dict[str, Any], experiment_tag: str = "") -> bool:
        """Has a trial go on from another's latest checkpoint, or its own, with another configuration. It is paused
        until it is chosen.

        Returns:
            False: nothing has changed, as the donor has no checkpoint, and its trainable cannot save one.
        """
        saves_now = donor in self._saving
        can_save = self.rules.saves and donor.state is TrialState.RUNNING
        if trial.is_finished() or not (donor.saved or can_save or saves_now) or self._is_replay:
            return False
        if trial.state is not TrialState.PAUSED:
            self._pause(trial, should_checkpoint=trial is donor)
            saves_now = donor in self._saving
        iteration = donor.last_result.get("training_iteration", 0)
        if not saves_now and not (can_save and not (donor.saved and donor.saved[-1].iteration >= iteration)):
            self._change(trial, donor.saved[-1], config, experiment_tag)
            return True
        self._awaiting.add(trial)
        if not saves_now and donor not in self._copies:
            self.wanted.append(donor)
        self._copies.setdefault(donor, []).append((trial, config, experiment_tag))
        return True

    def set_resources(self, trial: Trial, placement_group_factory: PlacementGroupFactory) -> None:
        """Has a trial go on with other resources; one that runs is paused, and goes on from its checkpoint."""
        if trial.is_finished() or trial.placement_group_factory == placement_group_factory or self._is_replay:
            return
        if trial.state in (TrialState.STARTING, TrialState.RUNNING):
            self._pause(trial, should_checkpoint=True)
        trial.placement_group_factory = placement_group_factory
        self._write(records.RESIZED, trial.number, placement_group_factory)

    # ------------------------------------------------------------ what the experiment calls

    @property
    def has_ended(self) -> bool:
        """Whether no trial is left, and none will come."""
        return not self._live and (self.is_stopping or self._is_exhausted)

    @property
    def is_stuck(self) -> bool:
        """Whether all trials that are left are paused, and no other will come."""
        return bool(
            self._is_exhausted
            and self._live
            and len(self._live) == self.counts[TrialState.PAUSED]
            and not self._saving
            and not self._awaiting
        )

    def choose(self, most_pending: int) -> Trial | None:
        """The trial that a runner is wanted for next; None: there is none now. It is STARTING then.

        Args:
            most_pending: how many trials are made in advance, for schedulers that choose among them.
        """
        scheduler = self.rules.scheduler
        while not self.is_stopping:
            if self.next_pending() is None:
                self._suggest()
            trial: Trial | None = scheduler.choose_trial_to_run(self)
            if trial is None:
                if self.counts[TrialState.PENDING] < most_pending and self._suggest():
                    continue
                return None
            if not self.is_ready(trial):
                raise TuneError(
                    f"The scheduler {type(scheduler).__name__} chose the trial {trial}, which is {trial.status} and "
                    "cannot be run."
                )
            self._move(trial, TrialEvent.CHOSEN)
            return trial
        return None

    def started(self, trial: Trial) -> None:
        """A runner has it."""
        self._move(trial, TrialEvent.STARTED)
        self._tell("on_trial_start", trial)

    def result(self, trial: Trial, result: dict[str, Any], saved: Saved | None = None) -> None:
        """Takes a result of a running trial, and the checkpoint that came with it. The trial's state says what has
        become of it."""
        written = {name: value for name, value in result.items() if name not in ("config", "experiment_tag")}
        self._write(records.RESULT, trial.number, written, saved)
        decision = self._take(trial, result, saved)
        if decision == STOP:
            result["done"] = True
        self._tell("on_trial_result", trial, result=result)
        if saved is not None:
            self._tell("on_checkpoint", trial, checkpoint=saved.checkpoint)
        if trial.state is TrialState.RUNNING:
            if decision == STOP:
                self._end(trial, records.STOPPED)
            elif decision == PAUSE:
                self._pause(trial, should_checkpoint=True)
        if self.rules.stops_all():
            self.stop()

    def completed(self, trial: Trial) -> None:
        """Its function has returned."""
        self._end(trial, records.RETURNED)

    def failed(self, trial: Trial, error: BaseException) -> None:
        """Its function, its class or its runner failed. It is tried again if failures are left."""
        trial.num_failures += 1
        trial.error = error
        most = self.rules.max_failures
        if (most < 0 or trial.num_failures <= most) and not self.is_stopping:
            self._write(records.RETRY, trial.number, error)
            self._tell("on_trial_recover", trial)
            self._move(trial, TrialEvent.RETRY)
            self._pending.appendleft(trial)
            self._unhold(trial)
            return
        self._end(trial, records.FAILED, error)
        if self.rules.fail_fast:
            if self.rules.fail_fast == "raise" and self.error is None:
                self.error = error
            self.stop()

    def saved(self, trial: Trial, saved: Saved | None, is_last: bool = True) -> None:
        """A checkpoint that `wanted` or a pause asked for. None: it could not be saved, and what waits for it goes on
        from an earlier one. `is_last`: no other one follows."""
        if saved is not None:
            self._save(trial, saved)
            self._write(records.SAVED, trial.number, saved)
            self._tell("on_checkpoint", trial, checkpoint=saved.checkpoint)
        if is_last:
            self._unhold(trial)

    def stop(self) -> None:
        """Ends all trials, and begins no other."""
        self.is_stopping = True
        for trial in list(self._live):
            if trial.state in (TrialState.PENDING, TrialState.PAUSED):
                self.rules.scheduler.on_trial_remove(self, trial)
            if not trial.is_finished():
                self.stop_trial(trial)

    # ------------------------------------------------------------ replay

    def begin(self, seed: Any) -> None:
        """Writes the journal's first record."""
        self._write(records.BEGIN, records.VERSION, seed)

    def replay(self, journal: Iterable[records.Record], keeper: Keeper) -> None:
        """Repeats what a journal tells. Trials that ran are pending then, and go on from their latest checkpoints.

        Args:
            journal: without its first record.
            keeper: is told of what follows.
        """
        self._is_replay = True
        for record in journal:
            self._repeat(*record)
        self._is_replay = False
        self._keeper = keeper
        self.halted.clear()
        self.wanted.clear()
        for trial in self._live:
            if trial.state in (TrialState.STARTING, TrialState.RUNNING):
                self._move(trial, TrialEvent.RETRY)
                self._pending.append(trial)
        self._saving.clear()
        self._awaiting.clear()
        self._copies.clear()

    def resume(self, config: ResumeConfig) -> None:
        """Has trials of a restored experiment run or end, by their kinds."""
        kinds = {TrialState.TERMINATED: config.finished, TrialState.ERROR: config.errored}
        for trial in self.trials:
            kind = kinds.get(trial.state, config.unfinished)
            if kind is ResumeType.SKIP:
                self.stop_trial(trial)
            elif kind is ResumeType.RESTART or trial.is_finished():
                from_checkpoint = kind is ResumeType.RESUME
                self._write(records.RESUMED, trial.number, from_checkpoint)
                self._resume(trial, from_checkpoint)

    def _repeat(self, kind: str, *what: Any) -> None:
        if kind == records.ADDED:
            trial_id, config, evaluated, tag, name, dirname = what
            self.rules.searcher.replay(trial_id, config)
            trial = self._add(trial_id, config, evaluated, tag, name, dirname)
            trial.config, trial.experiment_tag = config, tag  # schedulers may change them by chance
            return
        trial = self.trials[what[0]]
        if kind == records.RESULT:
            _, result, saved = what
            if trial.state in (TrialState.PENDING, TrialState.PAUSED):
                self._move(trial, TrialEvent.CHOSEN)
            if trial.state is TrialState.STARTING:
                self._move(trial, TrialEvent.STARTED)
            if trial.state is TrialState.RUNNING:
                self._take(trial, dict(result), saved)
        elif kind == records.PAUSED and not trial.is_finished():
            if trial.state is not TrialState.PAUSED:
                self._pause(trial, should_checkpoint=False)
        elif kind == records.CHANGED and not trial.is_finished():
            _, config, tag, saved = what
            if trial.state is not TrialState.PAUSED:
                self._pause(trial, should_checkpoint=False)
            self._change(trial, saved, config, tag)
        elif kind == records.RESIZED:
            trial.placement_group_factory = what[1]
        elif kind == records.SAVED:
            self.saved(trial, what[1])
        elif kind == records.RETRY and trial.state in (TrialState.STARTING, TrialState.RUNNING):
            self.failed(trial, what[1])
        elif kind == records.ENDED and not trial.is_finished():
            trial.num_failures += what[1] == records.FAILED
            self._end(trial, *what[1:])
        elif kind == records.RESUMED:
            self._resume(trial, what[1])

    def _resume(self, trial: Trial, from_checkpoint: bool) -> None:
        if not from_checkpoint:
            trial.saved.clear()
            trial.last_result = {}
            if trial.restore_from is not None:
                self._give_back(trial.restore_from)
                trial.restore_from = None
        if not trial.is_finished():
            return
        trial.error, trial.num_failures = None, 0
        self._move(trial, TrialEvent.RESUME)
        self._live[trial] = None
        self._pending.append(trial)
        self.rules.scheduler.on_trial_add(self, trial)

    # ------------------------------------------------------------ trials

    def _suggest(self) -> bool:
        """Asks the searcher for a trial. Returns whether there is one more."""
        if self._is_exhausted:
            return False
        rules = self.rules
        number = len(self.trials)
        if rules.num_samples is not None and number >= rules.num_samples:
            self._is_exhausted = True
            return False
        trial_id = rules.naming.trial_id(number)
        config = rules.searcher.suggest(trial_id)
        if config is None:
            return False
        if isinstance(config, str):  # FINISHED
            self._is_exhausted = True
            return False
        config = rules.naming.complete(config)
        evaluated = rules.naming.evaluated(config)
        tag = rules.naming.tag(number, trial_id, evaluated)
        trial = self._add(trial_id, config, evaluated, tag, "", "")
        rules.naming.name(trial)
        names = trial.custom_trial_name, trial.custom_dirname
        self._write(records.ADDED, trial_id, trial.config, evaluated, trial.experiment_tag, *names)
        return True

    def _add(
        self,
        trial_id: str,
        config: dict[str, Any],
        evaluated: dict[str, Any],
        tag: str,
        name: str,
        dirname: str,
    ) -> Trial:
        naming = self.rules.naming
        factory = self.rules.resources_of(config)
        trial = Trial(trial_id, len(self.trials), naming.trainable, config, evaluated, tag, factory)
        trial.custom_trial_name, trial.custom_dirname = name, dirname
        if dirname:
            naming.place(trial)
        self.trials.append(trial)
        self.counts[TrialState.PENDING] += 1
        self._live[trial] = None
        self._pending.append(trial)
        self.rules.scheduler.on_trial_add(self, trial)
        return trial

    def _move(self, trial: Trial, event: TrialEvent) -> None:
        self.counts[trial.machine.state] -= 1
        self.counts[trial.machine.step(event)] += 1

    def _take(self, trial: Trial, result: dict[str, Any], saved: Saved | None) -> str:
        """Has a result decided upon. In a replay the records that follow say what came of it."""
        result["config"] = trial.config
        result["experiment_tag"] = trial.experiment_tag
        trial.last_result = result
        if trial.restore_from is not None:
            self._give_back(trial.restore_from)
            trial.restore_from = None
        if saved is not None:
            self._save(trial, saved)
        self._compare(trial, result)
        rules = self.rules
        if result.get("done") or rules.stops(trial.trial_id, result):
            rules.scheduler.on_trial_complete(self, trial, result)
            return STOP
        decision: str = rules.scheduler.on_trial_result(self, trial, result)
        if decision != STOP and not trial.is_finished():
            rules.searcher.on_trial_result(trial.trial_id, result)
        return decision

    def _compare(self, trial: Trial, result: dict[str, Any]) -> None:
        metric = self.rules.metric
        value = retention.lookup(result, metric) if metric is not None else None
        if value is None or value != value:
            return
        sign = 1 if self.rules.mode == "max" else -1
        if self.best is None or sign * value > sign * self.best[0]:
            self.best = value, trial

    def _pause(self, trial: Trial, should_checkpoint: bool) -> None:
        had_runner = trial.state in (TrialState.STARTING, TrialState.RUNNING)
        saves = should_checkpoint and self.rules.saves and trial.state is TrialState.RUNNING
        self._move(trial, TrialEvent.PAUSE)
        self._paused.append(trial)
        self._write(records.PAUSED, trial.number)
        if had_runner:
            self.halted.append(trial)
            if saves and not self._is_replay:
                self._saving.add(trial)

    def is_saving(self, trial: Trial) -> bool:
        """Whether its checkpoint is wanted before its runner is taken away."""
        return trial in self._saving

    def _first(self, queue: deque[Trial], state: TrialState) -> Trial | None:
        """The first trial of a queue that is in this state and not held; others that were ahead of it are dropped."""
        while queue and queue[0].state is not state:
            queue.popleft()
        return next((trial for trial in queue if trial.state is state and not self._is_held(trial)), None)

    def _is_held(self, trial: Trial) -> bool:
        return trial in self._saving or trial in self._awaiting

    def _change(self, trial: Trial, saved: Saved, config: dict[str, Any], tag: str) -> None:
        if trial.restore_from is not None:
            self._give_back(trial.restore_from)
        trial.config = config
        trial.experiment_tag = tag or trial.experiment_tag
        trial.restore_from = saved
        path = saved.checkpoint.path
        self._borrowed[path] = self._borrowed.get(path, 0) + 1
        self._write(records.CHANGED, trial.number, config, trial.experiment_tag, saved)

    def _give_back(self, saved: Saved) -> None:
        path = saved.checkpoint.path
        self._borrowed[path] -= 1
        if not self._borrowed[path]:
            del self._borrowed[path]

    def _save(self, trial: Trial, saved: Saved) -> None:
        trial.saved.append(saved)
        trial.checkpoint_number += 1
        rules = self.rules
        if rules.num_to_keep is None:
            return
        kept = [(each.name, each.metrics) for each in trial.saved]
        borrowed = [each.name for each in trial.saved if each.checkpoint.path in self._borrowed]
        gone = set(
            retention.to_delete(kept, rules.num_to_keep, rules.score_attribute, rules.score_order, borrowed)
        )
        for each in [each for each in trial.saved if each.name in gone]:
            trial.saved.remove(each)
            if not self._is_replay:
                self._keeper.delete(trial, each)

    def _end(self, trial: Trial, how: str, error: BaseException | None = None) -> None:
        rules = self.rules
        had_runner = trial.state in (TrialState.STARTING, TrialState.RUNNING)
        self._move(trial, TrialEvent.FAIL if how == records.FAILED else TrialEvent.COMPLETE)
        self._live.pop(trial, None)
        self._awaiting.discard(trial)
        trial.error = error if how == records.FAILED else trial.error
        self._write(records.ENDED, trial.number, how, error)
        if how != records.FAILED and trial.last_result:
            trial.last_result = {**trial.last_result, "done": True}
        if how == records.FAILED:
            rules.scheduler.on_trial_error(self, trial)
        elif how == records.RETURNED:
            rules.scheduler.on_trial_complete(self, trial, trial.last_result)
        rules.searcher.on_trial_complete(
            trial.trial_id, result=trial.last_result or None, error=how == records.FAILED
        )
        self._tell("on_trial_error" if how == records.FAILED else "on_trial_complete", trial)
        if had_runner:
            self.halted.append(trial)
        self._unhold(trial)

    def _unhold(self, trial: Trial) -> None:
        """Nothing waits for its checkpoint any more."""
        self._saving.discard(trial)
        for copy, config, tag in self._copies.pop(trial, []):
            self._awaiting.discard(copy)
            if trial.saved and copy.state is TrialState.PAUSED:
                self._change(copy, trial.saved[-1], config, tag)

    def _write(self, *record: Any) -> None:
        if not self._is_replay:
            self._keeper.write(record)

    def _tell(self, what: str, trial: Trial, **info: Any) -> None:
        if not self._is_replay:
            self._keeper.tell(what, trial, **info)
