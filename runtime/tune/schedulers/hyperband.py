"""HyperBand with brackets whose trials wait for each other."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from ._controller import Controller
from ._objective import ObjectiveScheduler, Observation
from .trial_scheduler import TrialScheduler


class HyperBandScheduler(ObjectiveScheduler):
    """HyperBand: brackets of successive halving, from careful to bold.

    Bracket `s` takes `ceil((s_max + 1) / (s + 1) * eta ** s)` trials and runs each for `max_t * eta ** -s` units of
    time. Trials that get there pause until all have; the best `1 / eta` of them run `eta` times as long, and so on
    until `max_t`. A band is one bracket of each kind, smallest first; the next trial after a full band opens
    another one. If no new trials come, an incomplete bracket goes on with those it has.

    Source: Li et al. 2016, "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization",
    https://arxiv.org/abs/1603.06560. `max_t` is the most that one trial runs, not the `R` per bracket.

    Args:
        time_attr: result key that grows with a trial's progress.
        metric: result key to optimize.
        mode: "min" or "max".
        max_t: trials stop after this much time, in units of `time_attr`; at least 1.
        reduction_factor: `eta`, above 1.
        stop_last_trials: whether trials stop at `max_t`.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        if max_t < 1:
            raise ValueError(f"max_t must be at least 1, not {max_t!r}.")
        if reduction_factor <= 1:
            raise ValueError(f"reduction_factor must be greater than 1, not {reduction_factor!r}.")
        self._max_t = max_t
        self._eta = reduction_factor
        self._stop_last_trials = stop_last_trials
        self._kinds = round(math.log(max_t) / math.log(reduction_factor)) + 1
        self._bands: list[list[Bracket]] = []
        self._tried = 0
        self._current: Bracket | None = None
        self._bracket_of: dict[str, Bracket] = {}
        # Trials that were paused and have passed a rung, until they report. Those of them that already run again are
        # at most as many as there are workers.
        self._promoted: dict[str, None] = {}
        self._num_stopped = 0

    def on_trial_add(self, controller: Controller, trial: Any) -> None:
        """Puts the trial into the current bracket, or opens the next one."""
        super().on_trial_add(controller, trial)
        known = self._bracket_of.get(trial.trial_id)
        if known is not None:
            known.trials[trial.trial_id] = trial
            return
        if self._current is None or self._current.is_halved or self._current.is_full:
            self._current = self._open_bracket()
        self._current.join(trial)
        self._bracket_of[trial.trial_id] = self._current

    def _open_bracket(self) -> Bracket:
        while True:
            index = self._tried % self._kinds
            self._tried += 1
            if index == 0:
                self._bands.append([])
            s = self._kind(index)
            milestone = int(self._max_t * self._eta**-s + 1e-9)
            if milestone > 0:
                size = math.ceil(self._kinds / (s + 1) * self._eta**s - 1e-9)
                bracket = Bracket(size, milestone, s, self._eta, self._max_t)
                self._bands[-1].append(bracket)
                return bracket

    def _kind(self, index: int) -> int:
        """How often the `index`-th bracket of a band is halved."""
        return index

    def on_trial_result(self, controller: Controller, trial: Any, result: dict[str, Any]) -> str:
        """PAUSE at a rung that others have yet to reach; otherwise what the halving says."""
        bracket = self._bracket_of.get(trial.trial_id)
        observation = self._observe(trial, result)
        if bracket is None or observation is None:
            return TrialScheduler.CONTINUE
        if trial.trial_id in bracket.waiting:
            # It runs again: `choose_trial_to_run` has halved the bracket. Restoring a study repeats its results only.
            self._halve(controller, bracket, None)
        self._promoted.pop(trial.trial_id, None)
        bracket.observations[trial.trial_id] = observation
        if observation.time < bracket.milestone or (bracket.is_last_rung and not self._stop_last_trials):
            return TrialScheduler.CONTINUE
        if bracket.is_last_rung:
            self._drop(trial.trial_id)
            return TrialScheduler.STOP
        bracket.waiting.add(trial.trial_id)
        if not self._is_ready(bracket):
            return TrialScheduler.PAUSE
        return self._halve(controller, bracket, trial)

    def _is_ready(self, bracket: Bracket) -> bool:
        """Whether all trials of the bracket have reached the rung, and no more are expected to join."""
        return bracket.all_wait and (bracket.is_halved or bracket.is_full)

    def _halve(self, controller: Controller, bracket: Bracket, reporting: Any | None) -> str:
        """Stops a rung's worst trials and promotes the others. Returns the decision on the one that reports."""
        decision = TrialScheduler.PAUSE
        while bracket.all_wait:
            good, bad = bracket.halve()
            if bracket.is_last_rung and self._stop_last_trials:
                over = [t for t in good if bracket.observations[t].time >= bracket.milestone]
                bad += over
                good = [t for t in good if t not in over]
            for trial_id in bad:
                trial = bracket.trials[trial_id]
                self._drop(trial_id)
                self._num_stopped += 1
                if trial is reporting:
                    decision = TrialScheduler.STOP
                else:
                    controller.stop_trial(trial)
            for trial_id in good:
                trial = bracket.trials[trial_id]
                if bracket.observations[trial_id].time >= bracket.milestone and not bracket.is_last_rung:
                    bracket.waiting.add(trial_id)
                elif trial is reporting:
                    decision = TrialScheduler.CONTINUE
                else:
                    self._promote(controller, trial)
        return decision

    def _promote(self, controller: Controller, trial: Any) -> None:
        self._promoted[trial.trial_id] = None

    def _drop(self, trial_id: str) -> Bracket | None:
        bracket = self._bracket_of.pop(trial_id, None)
        self._promoted.pop(trial_id, None)
        if bracket is not None:
            bracket.drop(trial_id)
        return bracket

    def _end(self, controller: Controller, trial: Any) -> None:
        bracket = self._drop(trial.trial_id)
        if bracket is not None and self._is_ready(bracket):
            self._halve(controller, bracket, None)

    def state(self) -> dict[str, int]:
        """How many brackets there are, and how many trials were stopped at rungs."""
        return {"num_brackets": sum(len(band) for band in self._bands), "num_stopped": self._num_stopped}

    def on_trial_error(self, controller: Controller, trial: Any) -> None:
        """The bracket does without the trial."""
        super().on_trial_error(controller, trial)
        self._end(controller, trial)

    def on_trial_complete(self, controller: Controller, trial: Any, result: dict[str, Any]) -> None:
        """The bracket does without the trial."""
        super().on_trial_complete(controller, trial, result)
        self._end(controller, trial)

    def on_trial_remove(self, controller: Controller, trial: Any) -> None:
        """The bracket does without the trial."""
        super().on_trial_remove(controller, trial)
        self._end(controller, trial)

    def choose_trial_to_run(self, controller: Controller) -> Any | None:
        """A trial that has passed a rung, else a new one. If there is neither, an incomplete bracket is halved."""
        chosen = self._promoted_trial(controller) or controller.next_pending()
        if chosen is None and self._current is not None and self._current.all_wait:
            self._halve(controller, self._current, None)
            chosen = self._promoted_trial(controller)
        return chosen

    def _promoted_trial(self, controller: Controller) -> Any | None:
        for trial_id in self._promoted:
            trial = self._bracket_of[trial_id].trials[trial_id]
            if controller.is_ready(trial):
                return trial
        return None

    def debug_string(self) -> str:
        """A line for each bracket: its size, its next rung, its trials by status."""
        state = self.state()
        lines = [
            f"Using HyperBand: num_stopped={state['num_stopped']} total_brackets={state['num_brackets']}"
        ]
        for number, band in enumerate(self._bands):
            lines.append(f"Round #{number}:")
            lines += [f"  {bracket.debug_string()}" for bracket in band]
        return "\n".join(lines)


class Bracket:
    """Trials that are compared with each other.

    Args:
        size: how many trials it takes. Later: how many go on after the last halving.
        milestone: time of the first rung.
        halvings: rungs before the last one.
        eta: reduction factor.
        max_t: time of the last rung.
    """

    def __init__(self, size: int, milestone: int, halvings: int, eta: float, max_t: float) -> None:
        self.milestone: float = milestone
        self.is_halved = False
        self.trials: dict[str, Any] = {}
        self.observations: dict[str, Observation] = {}
        self.waiting: set[str] = set()
        self._size = size
        self._joined = 0
        self._halvings = halvings
        self._eta = eta
        self._max_t = max_t

    @property
    def is_full(self) -> bool:
        """Whether all its trials have joined. Those that fail are not replaced."""
        return self._joined >= self._size

    def join(self, trial: Any) -> None:
        """Takes a trial."""
        self.trials[trial.trial_id] = trial
        self._joined += 1

    @property
    def is_last_rung(self) -> bool:
        """Whether trials that reach the milestone are done."""
        return self._halvings == 0

    @property
    def all_wait(self) -> bool:
        """Whether there are trials and all have reached a rung that is not the last."""
        return bool(self.trials) and len(self.waiting) == len(self.trials)

    def halve(self) -> tuple[list[str], list[str]]:
        """Goes to the next rung. Returns who goes on and who does not. Of equals, later ones go on."""
        self.is_halved = True
        self._halvings -= 1
        self._size = math.ceil(self._size / self._eta - 1e-9)
        self.milestone = int(min(self.milestone * self._eta, self._max_t) + 1e-9)
        self.waiting.clear()
        ranked = sorted(self.trials, key=lambda trial_id: self.observations[trial_id].score)
        return ranked[-self._size :], ranked[: -self._size]

    def drop(self, trial_id: str) -> None:
        """Forgets a trial."""
        self.trials.pop(trial_id, None)
        self.observations.pop(trial_id, None)
        self.waiting.discard(trial_id)

    def debug_string(self) -> str:
        """Its size, its next rung and its trials by status."""
        counts = Counter(trial.status for trial in self.trials.values())
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(counts.items()))
        return f"Bracket(Max Size (n)={self._size}, Milestone (r)={self.milestone}): {{{statuses}}}"
