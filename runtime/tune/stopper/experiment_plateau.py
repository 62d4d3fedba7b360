"""Ends a study whose best results have stopped changing."""

from __future__ import annotations

import statistics
from bisect import insort
from typing import Any

from runtime.train._core.retention import lookup

from .stopper import Stopper


class ExperimentPlateauStopper(Stopper):
    """Ends the study when its best results have been alike for a while.

    Args:
        metric: result key to watch.
        std: the best results are alike if their standard deviation is at most this.
        top: how many results are the best.
        mode: "min" or "max".
        patience: they must have been alike for so many results in a row.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0
    ) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f'mode must be "min" or "max", not {mode!r}.')
        if not isinstance(top, int) or top <= 1:
            raise ValueError(f"top must be a whole number greater than 1, not {top!r}.")
        if not isinstance(patience, int) or patience < 0:
            raise ValueError(f"patience must be a whole number of at least 0, not {patience!r}.")
        if not isinstance(std, int | float) or std <= 0:
            raise ValueError(f"std must be a number greater than 0, not {std!r}.")
        self._metric = metric
        self._mode = mode
        self._std = std
        self._top = top
        self._patience = patience
        self._top_values: list[float] = []
        self._iterations = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the study ends with this result."""
        value = lookup(result, self._metric)
        if value is None:
            raise ValueError(
                f"ExperimentPlateauStopper needs the metric {self._metric!r} in all results, but one of trial "
                f"{trial_id} has only {sorted(map(str, result))}."
            )
        insort(self._top_values, value)
        if len(self._top_values) > self._top:
            self._top_values.pop(-1 if self._mode == "min" else 0)
        self._iterations = self._iterations + 1 if self.has_plateaued() else 0
        return self.stop_all()

    def has_plateaued(self) -> bool:
        """Whether the best results are alike."""
        return len(self._top_values) == self._top and statistics.pstdev(self._top_values) <= self._std

    def stop_all(self) -> bool:
        """Whether they have been alike for long enough."""
        return self.has_plateaued() and self._iterations >= self._patience
