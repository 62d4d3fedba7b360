"""Ends trials after a number of results."""

from __future__ import annotations

from typing import Any

from .stopper import Stopper


class MaximumIterationStopper(Stopper):
    """Ends a trial with its `max_iter`-th result.

    Args:
        max_iter: how many results a trial may report.
    """

    def __init__(self, max_iter: int) -> None:
        self._max_iter = max_iter
        self._iter: dict[str, int] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether this was the trial's last result."""
        self._iter[trial_id] = self._iter.get(trial_id, 0) + 1
        return self._iter[trial_id] >= self._max_iter

    def stop_all(self) -> bool:
        """False."""
        return False
