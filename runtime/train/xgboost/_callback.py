"""Reports of a training with XGBoost."""

from __future__ import annotations

import pathlib
from typing import Any

import xgboost

from runtime.train._api.checkpoint import Checkpoint
from runtime.train._run.boosting import BoostingCallback


class RayTrainReportCallback(BoostingCallback, xgboost.callback.TrainingCallback):  # type: ignore[misc]
    """Reports after each iteration. A metric's name is that of the evaluated data and XGBoost's, "train-logloss".

    Args: see `runtime.train._run.boosting.BoostingCallback`.
    """

    CHECKPOINT_NAME = "model.ubj"

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> xgboost.Booster:
        """The model of a checkpoint that this callback has reported."""
        with checkpoint.as_directory() as folder:
            booster = xgboost.Booster()
            booster.load_model(pathlib.Path(folder, filename))
            return booster

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Called by XGBoost."""
        metrics = {
            f"{data}-{name}": values[-1] for data, row in evals_log.items() for name, values in row.items()
        }
        self._after(model.num_boosted_rounds() - 1, metrics, model.save_model)
        return False

    def after_training(self, model: Any) -> Any:
        """Called by XGBoost."""
        self._end(model.num_boosted_rounds() - 1, model.save_model)
        return model
