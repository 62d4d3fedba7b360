"""Asynchronous successive halving."""

from __future__ import annotations

import math
import random
from bisect import insort
from typing import Any

from ._controller import Controller
from ._objective import ObjectiveScheduler, Observation, check_positive
from .trial_scheduler import TrialScheduler


class AsyncHyperBandScheduler(ObjectiveScheduler):
    """Asynchronous successive halving (ASHA), stopping variant.

    A bracket has rungs at `grace_period * reduction_factor ** k` units of time. A trial that reaches a rung stops if
    its score is below the top `1 / reduction_factor` of the scores recorded there before it; it never waits for
    others. A result that passes several rungs at once counts for the highest. A trial whose metric is NaN stops as
    soon as there is another one to compare it with.

    Source: Li et al. 2018, "A System for Massively Parallel Hyperparameter Tuning", https://arxiv.org/abs/1810.05934.

    Args:
        time_attr: result key that grows with a trial's progress.
        metric: result key to optimize.
        mode: "min" or "max".
        max_t: trials stop after this much time, in units of `time_attr`.
        grace_period: trials are not stopped before this time.
        reduction_factor: one in so many trials passes a rung; also the distance of rungs.
        brackets: how many brackets there are. Bracket `s` leaves out the first `s` rungs. A trial's bracket is drawn
            with a probability in proportion to e to the power of the bracket's number of rungs.
        stop_last_trials: whether trials stop at `max_t`.
        seed: of the draws of brackets. None: a random one, taken from the module `random`.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        check_positive(max_t=max_t, grace_period=grace_period, brackets=brackets)
        if grace_period > max_t:
            raise ValueError(f"grace_period must be at most max_t ({max_t!r}), not {grace_period!r}.")
        if reduction_factor <= 1:
            raise ValueError(f"reduction_factor must be greater than 1, not {reduction_factor!r}.")
        self._max_t = max_t
        self._stop_last_trials = stop_last_trials
        self._brackets = [Bracket(grace_period, max_t, reduction_factor, s) for s in range(brackets)]
        self._bracket_of: dict[str, Bracket] = {}
        self._random = random.Random(random.getrandbits(64) if seed is None else seed)
        self._num_stopped = 0

    def on_trial_add(self, controller: Controller, trial: Any) -> None:
        """Draws the trial's bracket."""
        super().on_trial_add(controller, trial)
        if trial.trial_id not in self._bracket_of:
            self._bracket_of[trial.trial_id] = self._draw_bracket()

    def _draw_bracket(self) -> Bracket:
        if len(self._brackets) == 1:
            return self._brackets[0]
        weights = [math.exp(len(bracket.rungs) - len(self._brackets[0].rungs)) for bracket in self._brackets]
        return self._random.choices(self._brackets, weights)[0]

    def on_trial_result(self, controller: Controller, trial: Any, result: dict[str, Any]) -> str:
        """STOP at `max_t` or below a rung's cutoff, else CONTINUE."""
        observation = self._observe(trial, result)
        if observation is None:
            return TrialScheduler.CONTINUE
        is_over = observation.time >= self._max_t and self._stop_last_trials
        if not is_over and self._bracket_of[trial.trial_id].record(trial.trial_id, observation):
            return TrialScheduler.CONTINUE
        self._num_stopped += 1
        self._forget(trial)
        return TrialScheduler.STOP

    def on_trial_complete(self, controller: Controller, trial: Any, result: dict[str, Any]) -> None:
        """The last result counts for the rung it has reached."""
        super().on_trial_complete(controller, trial, result)
        bracket = self._bracket_of.get(trial.trial_id)
        observation = self._read(trial, result)
        if bracket is not None and observation is not None:
            bracket.record(trial.trial_id, observation)
        self._forget(trial)

    def on_trial_remove(self, controller: Controller, trial: Any) -> None:
        """Forgets the trial's bracket. What it has recorded stays."""
        super().on_trial_remove(controller, trial)
        self._forget(trial)

    def _forget(self, trial: Any) -> None:
        bracket = self._bracket_of.pop(trial.trial_id, None)
        if bracket is not None:
            bracket.forget(trial.trial_id)

    def debug_string(self) -> str:
        """How many trials were stopped, and each rung's cutoff."""
        lines = [f"Using AsyncHyperBand: num_stopped={self._num_stopped}"]
        return "\n".join(lines + [bracket.debug_string() for bracket in self._brackets])


class Bracket:
    """Rungs in ascending order, and how far each trial has come.

    Args:
        min_t: time of the first rung of bracket 0.
        max_t: no rung is later.
        reduction_factor: ratio of the times of neighbouring rungs.
        s: number of the bracket.
    """

    def __init__(self, min_t: float, max_t: float, reduction_factor: float, s: int) -> None:
        self.rungs: list[Rung] = []
        # The logarithm of a power may come out a little too small: rungs are counted by multiplying.
        while (milestone := min_t * reduction_factor ** (s + len(self.rungs))) <= max_t * (1 + 1e-9):
            self.rungs.append(Rung(milestone, reduction_factor))
        self._passed: dict[str, int] = {}

    def record(self, trial_id: str, observation: Observation) -> bool:
        """Records a result at the highest rung that it reaches anew. False: the trial is to be stopped."""
        passed = self._passed.get(trial_id, 0)
        reached = passed
        while reached < len(self.rungs) and observation.time >= self.rungs[reached].milestone:
            reached += 1
        if reached == passed:
            return True
        self._passed[trial_id] = reached
        return self.rungs[reached - 1].record(observation.score)

    def forget(self, trial_id: str) -> None:
        """The trial reports no more."""
        self._passed.pop(trial_id, None)

    def debug_string(self) -> str:
        """The cutoffs of all rungs."""
        return "Bracket: " + " | ".join(
            f"Iter {rung.milestone:.3f}: {rung.cutoff()}" for rung in reversed(self.rungs)
        )


class Rung:
    """The scores of the trials that have reached one time.

    Args:
        milestone: the time.
        reduction_factor: one in so many trials passes.
    """

    def __init__(self, milestone: float, reduction_factor: float) -> None:
        self.milestone = milestone
        self._quantile = 1 - 1 / reduction_factor
        self._scores: list[float] = []

    def cutoff(self) -> float | None:
        """The score needed to pass: the quantile of the recorded ones, linearly interpolated. None: any will do."""
        if not self._scores:
            return None
        place = (len(self._scores) - 1) * self._quantile
        below = math.floor(place)
        low, high = self._scores[below], self._scores[min(below + 1, len(self._scores) - 1)]
        return low if low == high else low + (high - low) * (place - below)

    def record(self, score: float) -> bool:
        """Compares a score with those recorded so far, then records it. False: it does not pass.

        The score of a trial that has diverged (-inf) is compared but not recorded.
        """
        cutoff = self.cutoff()
        if score != -math.inf:
            insort(self._scores, score)
        return cutoff is None or score >= cutoff


ASHAScheduler = AsyncHyperBandScheduler
