"""What the callbacks of XGBoost and LightGBM have in common."""

from __future__ import annotations

from typing import Any

from runtime.train._api.checkpoint import Checkpoint
from runtime.train._run.boosting import BoostingCallback
from runtime.tune._api.reporting import report


class TuneReports(BoostingCallback):
    """Reports to the trial, which is one process: it saves the model."""

    def _has_checkpoint(self) -> bool:
        return True

    def _send(self, metrics: dict[str, Any], checkpoint: Checkpoint | None = None) -> None:
        report(metrics, checkpoint=checkpoint)
