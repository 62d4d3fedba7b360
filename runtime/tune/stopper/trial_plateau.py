"""Ends trials whose results have stopped changing."""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import Any

from runtime.train._core.retention import lookup

from .stopper import Stopper


class TrialPlateauStopper(Stopper):
    """Ends a trial once its last results are alike.

    Args:
        metric: result key to watch.
        std: results are alike if their standard deviation is below this.
        num_results: how many results are looked at.
        grace_period: a trial reports at least so many results.
        metric_threshold: a trial goes on as long as its result is worse than this. None: any will do.
        mode: "min" or "max": which results are worse than `metric_threshold`.

    Raises:
        ValueError: `mode` is neither, but there is a `metric_threshold`.
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        if metric_threshold is not None and mode not in ("min", "max"):
            raise ValueError(f'mode must be "min" or "max" if metric_threshold is given, not {mode!r}.')
        self._metric = metric
        self._mode = mode
        self._std = std
        self._num_results = num_results
        self._grace_period = grace_period
        self._metric_threshold = metric_threshold
        self._iter: dict[str, int] = {}
        self._trial_results: dict[str, deque[float | None]] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial ends with this result."""
        value = lookup(result, self._metric)
        recent = self._trial_results.setdefault(trial_id, deque(maxlen=self._num_results))
        recent.append(value)
        self._iter[trial_id] = self._iter.get(trial_id, 0) + 1
        if self._iter[trial_id] < self._grace_period or len(recent) < self._num_results:
            return False
        values = [float(known) for known in recent if known is not None]
        if (
            len(values) < self._num_results
            or not all(map(math.isfinite, values))
            or self._is_short_of_threshold(values[-1])
        ):
            return False
        return statistics.pstdev(values) < self._std

    def _is_short_of_threshold(self, value: float) -> bool:
        if self._metric_threshold is None:
            return False
        return value > self._metric_threshold if self._mode == "min" else value < self._metric_threshold

    def stop_all(self) -> bool:
        """False."""
        return False
