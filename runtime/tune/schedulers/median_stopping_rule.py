"""Stops trials that are worse than the median of the others."""

from __future__ import annotations

import math
from typing import Any

from ._controller import Controller
from ._objective import ObjectiveScheduler
from ._running_means import RunningMeans
from .trial_scheduler import TrialScheduler


class MedianStoppingRule(ObjectiveScheduler):
    """The median stopping rule.

    A trial stops at time `t` if its best score so far is worse than the median, over the other trials that have come
    as far as `t`, of the mean of their scores from the end of the grace period up to `t`. Means that are not finite
    are left out. Times that are not whole numbers are compared to 1/1024 of a unit.

    Source: Golovin et al. 2017, "Google Vizier: A Service for Black-Box Optimization", section 3.2.2.

    Args:
        time_attr: result key that grows with a trial's progress.
        metric: result key to optimize.
        mode: "min" or "max".
        grace_period: trials are neither stopped nor averaged before this time, in units of `time_attr`.
        min_samples_required: how many other trials a median needs.
        min_time_slice: if there are too few samples, a trial makes room for waiting ones after this time.
        hard_stop: False: pause trials instead of stopping them. They go on once no new trials are left.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float = 60.0,
        min_samples_required: int = 3,
        min_time_slice: float = 0,
        hard_stop: bool = True,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        if min_samples_required < 1:
            raise ValueError(f"min_samples_required must be at least 1, not {min_samples_required!r}.")
        self._grace_period = grace_period
        self._min_samples_required = min_samples_required
        self._min_time_slice = min_time_slice
        self._hard_stop = hard_stop
        self._means = RunningMeans()
        self._best: dict[str, float] = {}
        self._last_pause: dict[str, float] = {}
        self._stopped_ids: set[str] = set()

    def on_trial_result(self, controller: Controller, trial: Any, result: dict[str, Any]) -> str:
        """STOP (or PAUSE) below the median, PAUSE to let others give samples, else CONTINUE."""
        observation = self._observe(trial, result)
        if observation is None or trial.trial_id in self._stopped_ids:
            return TrialScheduler.CONTINUE
        best = max(self._best.get(trial.trial_id, -math.inf), observation.score)
        self._best[trial.trial_id] = best
        time = observation.time
        if time < self._grace_period:
            return TrialScheduler.CONTINUE
        samples, is_worse = self._means.compare(time, best)
        self._means.add(trial.trial_id, time, observation.score)
        if samples < self._min_samples_required:
            return self._wait_for_samples(controller, trial.trial_id, time)
        if not is_worse:
            return TrialScheduler.CONTINUE
        self._stopped_ids.add(trial.trial_id)
        return TrialScheduler.STOP if self._hard_stop else TrialScheduler.PAUSE

    def _wait_for_samples(self, controller: Controller, trial_id: str, time: float) -> str:
        """PAUSE if other trials wait and this one has had its slice of time."""
        if time - self._last_pause.get(trial_id, -math.inf) <= self._min_time_slice:
            return TrialScheduler.CONTINUE
        if not controller.others_wait():
            return TrialScheduler.CONTINUE
        self._last_pause[trial_id] = time
        return TrialScheduler.PAUSE

    def on_trial_complete(self, controller: Controller, trial: Any, result: dict[str, Any]) -> None:
        """The last result counts for the medians of others."""
        super().on_trial_complete(controller, trial, result)
        observation = self._read(trial, result)
        if observation is None or trial.trial_id in self._stopped_ids or trial.trial_id not in self._best:
            return
        if observation.time >= self._grace_period:
            self._means.add(trial.trial_id, observation.time, observation.score)

    def debug_string(self) -> str:
        """How many trials were stopped."""
        return f"Using MedianStoppingRule: num_stopped={len(self._stopped_ids)}."
