"""Trials that train with LightGBM."""

from __future__ import annotations

from runtime.train.lightgbm import RayTrainReportCallback
from runtime.tune.integration._boosting import TuneReports, WithoutCheckpoints


class TuneReportCheckpointCallback(TuneReports, RayTrainReportCallback):
    """Reports to the trial after each iteration, and saves the model in checkpoints.

    Args: see `runtime.train._run.boosting.BoostingCallback`.
    """


class TuneReportCallback(WithoutCheckpoints, TuneReportCheckpointCallback):
    """Reports to the trial after each iteration, without checkpoints.

    Args: see `runtime.tune.integration._boosting.WithoutCheckpoints`.
    """
