"""What the schedulers that compare trials have in common: a metric, its direction, and a measure of time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from runtime.train._core.retention import lookup

from ._controller import Controller, Trial
from .trial_scheduler import DEFAULT_METRIC, FIFOScheduler, as_number, missing_key_message


@dataclass(frozen=True, slots=True)
class Observation:
    """What a result says to a scheduler.

    Attributes:
        time: value of `time_attr`.
        score: value of the metric, negated if it is minimized: larger is better. NaN becomes -inf.
    """

    time: float
    score: float


def check_positive(**values: float) -> None:
    """Raises ValueError with the argument's name unless all are above zero."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be greater than 0, not {value!r}.")


class ObjectiveScheduler(FIFOScheduler):
    """Base of the schedulers that read a metric and a time from results. Keys of nested results are joined with "/".

    Args:
        time_attr: result key that grows with a trial's progress.
        metric: result key to optimize.
        mode: "min" or "max".

    Raises:
        ValueError: `mode` is neither.
    """

    def __init__(self, time_attr: str, metric: str | None, mode: str | None) -> None:
        super().__init__()
        if mode not in (None, "min", "max"):
            raise ValueError(f'mode must be "min" or "max", not {mode!r}.')
        self._time_attr = time_attr
        self._metric = metric
        self._mode = mode
        self._complete_ids: set[str] = set()

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Takes metric and mode of `TuneConfig`, unless the scheduler has its own."""
        if (self._metric and metric) or (self._mode and mode):
            return False
        if mode not in (None, "min", "max"):
            raise ValueError(f'mode must be "min" or "max", not {mode!r}.')
        self._metric = metric or self._metric
        self._mode = mode or self._mode
        if self._metric is None and self._mode:
            self._metric = DEFAULT_METRIC
        return True

    def on_trial_add(self, controller: Controller, trial: Any) -> None:
        """Raises ValueError if metric or mode are unknown."""
        if not self._metric or not self._mode:
            raise ValueError(
                f"{type(self).__name__} needs a metric and a mode, but has metric={self._metric!r} and "
                f"mode={self._mode!r}. Pass them to it or to TuneConfig, in one place only."
            )

    def on_trial_error(self, controller: Controller, trial: Any) -> None:
        """Forgets the trial."""
        self._complete_ids.discard(trial.trial_id)

    def on_trial_complete(self, controller: Controller, trial: Any, result: dict[str, Any]) -> None:
        """Forgets the trial."""
        self._complete_ids.discard(trial.trial_id)

    def on_trial_remove(self, controller: Controller, trial: Any) -> None:
        """Forgets the trial."""
        self._complete_ids.discard(trial.trial_id)

    def _observe(self, trial: Trial, result: dict[str, Any]) -> Observation | None:
        """Reads time and score. None: the result lacks one of them and is skipped.

        Raises:
            ValueError: the first result of a trial lacks a key: it is likely to be misspelt. Later ones may, as of
                a metric that is only computed now and then.
            TypeError: the metric is not a number.
        """
        observation = self._read(trial, result)
        if observation is not None:
            self._complete_ids.add(trial.trial_id)
            return observation
        has_time = lookup(result, self._time_attr) is not None
        role, key = ("metric", str(self._metric)) if has_time else ("time_attr", self._time_attr)
        self._on_missing(trial, key, role, result)
        return None

    def _read(self, trial: Trial, result: dict[str, Any]) -> Observation | None:
        """Reads time and score; None if one is missing."""
        time, value = lookup(result, self._time_attr), lookup(result, str(self._metric))
        if time is None or value is None:
            return None
        score = as_number(value, str(self._metric), trial)
        if math.isnan(score):
            return Observation(time, -math.inf)
        return Observation(time, score if self._mode == "max" else -score)

    def _on_missing(self, trial: Trial, key: str, role: str, result: dict[str, Any]) -> None:
        if trial.trial_id not in self._complete_ids:
            raise ValueError(missing_key_message(self, trial, key, role, result))
