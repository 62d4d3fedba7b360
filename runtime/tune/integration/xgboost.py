"""Trials that train with XGBoost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.train._run.boosting import Metrics
from runtime.train.xgboost import RayTrainReportCallback
from runtime.tune.integration._boosting import TuneReports


class TuneReportCheckpointCallback(TuneReports, RayTrainReportCallback):
    """Reports to the trial after each iteration, and saves the model in checkpoints.

    Args: see `runtime.train._run.boosting.BoostingCallback`.
    """


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports to the trial after each iteration, without checkpoints.

    Args:
        metrics: Those to report, such as "eval-loss", or a dict from new names to them. Default: all.
        results_postprocessing_fn: Makes what is reported of the metrics.
    """

    def __init__(
        self,
        metrics: Metrics | None = None,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(
            metrics, checkpoint_at_end=False, results_postprocessing_fn=results_postprocessing_fn
        )
