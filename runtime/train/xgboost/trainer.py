"""Training with XGBoost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runtime.train._run.boosting import BoostingTrainer
from runtime.train.xgboost._backend import XGBoostConfig
from runtime.train.xgboost._callback import RayTrainReportCallback

if TYPE_CHECKING:
    import xgboost

    from runtime.train._api.checkpoint import Checkpoint


class XGBoostTrainer(BoostingTrainer):
    """Runs a training function on several workers, each with XGBoost's communicator: `xgboost.train` on a shard of the
    rows trains one model of all.

    Args:
        train_loop_per_worker: the training function.
        xgboost_config: how the workers are connected.
        options: of `DataParallelTrainer`. Those of Ray's earlier versions raise (`BoostingTrainer`).
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any] | None = None,
        *,
        xgboost_config: XGBoostConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__(train_loop_per_worker, backend_config=xgboost_config or XGBoostConfig(), **options)

    @classmethod
    def get_model(cls, checkpoint: Checkpoint) -> xgboost.Booster:
        """The model of a checkpoint."""
        return RayTrainReportCallback.get_model(checkpoint)
