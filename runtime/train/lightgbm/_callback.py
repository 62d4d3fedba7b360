"""Reports of a training with LightGBM."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import lightgbm

from runtime.train._api.checkpoint import Checkpoint
from runtime.train._run.boosting import BoostingReports, Metrics


class RayTrainReportCallback:
    """Reports after each iteration. A metric's name is that of the evaluated data and LightGBM's, "train-l2".

    Args: see `runtime.train._run.boosting.BoostingReports`.
    """

    CHECKPOINT_NAME = "model.txt"
    order = 30  # after LightGBM's own callbacks

    def __init__(
        self,
        metrics: Metrics | None = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._reports = BoostingReports(
            metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn
        )

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> lightgbm.Booster:
        """The model of a checkpoint that this callback has reported."""
        with checkpoint.as_directory() as folder:
            return lightgbm.Booster(model_file=str(pathlib.Path(folder, filename)))

    def __call__(self, env: Any) -> None:
        """Called by LightGBM."""
        metrics = {f"{row[0]}-{row[1]}": row[2] for row in env.evaluation_result_list or ()}
        self._reports.after(env.iteration, metrics, env.model.save_model)
        if env.iteration == env.end_iteration - 1:
            self._reports.end(env.iteration, env.model.save_model)
