"""Reports of a training with LightGBM."""

from __future__ import annotations

import pathlib
from typing import Any

import lightgbm

from runtime.train._api.checkpoint import Checkpoint
from runtime.train._run.boosting import BoostingCallback


class RayTrainReportCallback(BoostingCallback):
    """Reports after each iteration. A metric's name is that of the evaluated data and LightGBM's, "train-l2".

    Args: see `runtime.train._run.boosting.BoostingCallback`.
    """

    CHECKPOINT_NAME = "model.txt"
    order = 30  # after LightGBM's own callbacks

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> lightgbm.Booster:
        """The model of a checkpoint that this callback has reported."""
        with checkpoint.as_directory() as folder:
            return lightgbm.Booster(model_file=str(pathlib.Path(folder, filename)))

    def __call__(self, env: Any) -> None:
        """Called by LightGBM."""
        metrics = {f"{row[0]}-{row[1]}": row[2] for row in env.evaluation_result_list or ()}
        self._after(env.iteration, metrics, env.model.save_model)
        if env.iteration == env.end_iteration - 1:
            self._end(env.iteration, env.model.save_model)
