"""Trials that train with LightGBM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.train._run.boosting import Metrics
from runtime.train.lightgbm import RayTrainReportCallback
from runtime.tune.integration._boosting import TuneReports

Postprocessing = Callable[[dict[str, Any]], dict[str, Any]]


class TuneReportCheckpointCallback(RayTrainReportCallback):
    """Reports to the trial after each iteration, and saves the model in checkpoints.

    Args:
        metrics: Those to report, such as "eval-loss", or a dict from new names to them. Default: all.
        filename: Of the model in the checkpoint.
        frequency: Iterations between two checkpoints; 0: none before the end.
        checkpoint_at_end: Whether there is a checkpoint at the end.
        results_postprocessing_fn: Makes what is reported of the metrics.
    """

    def __init__(
        self,
        metrics: Metrics | None = None,
        filename: str = RayTrainReportCallback.CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Postprocessing | None = None,
    ) -> None:
        super().__init__(metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn)
        self._reports = TuneReports(metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn)


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports to the trial after each iteration, without checkpoints.

    Args: see `TuneReportCheckpointCallback`.
    """

    def __init__(
        self, metrics: Metrics | None = None, results_postprocessing_fn: Postprocessing | None = None
    ) -> None:
        super().__init__(
            metrics, checkpoint_at_end=False, results_postprocessing_fn=results_postprocessing_fn
        )
