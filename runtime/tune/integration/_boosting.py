"""What the callbacks of XGBoost and LightGBM have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.train._api.checkpoint import Checkpoint
from runtime.train._run.boosting import BoostingCallback, Metrics
from runtime.tune._api.reporting import report


class TuneReports(BoostingCallback):
    """Reports to the trial, which is one process: it saves the model."""

    def _has_checkpoint(self) -> bool:
        return True

    def _send(self, metrics: dict[str, Any], checkpoint: Checkpoint | None = None) -> None:
        report(metrics, checkpoint=checkpoint)


class WithoutCheckpoints(TuneReports):
    """Saves no model.

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
