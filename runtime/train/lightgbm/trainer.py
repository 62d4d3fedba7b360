"""Training with LightGBM."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runtime.train._run.boosting import BoostingTrainer
from runtime.train.lightgbm._backend import LightGBMConfig
from runtime.train.lightgbm._callback import RayTrainReportCallback

if TYPE_CHECKING:
    import lightgbm

    from runtime.train._api.checkpoint import Checkpoint


class LightGBMTrainer(BoostingTrainer):
    """Runs a training function on several workers. `lightgbm.train` with `get_network_params()` among its parameters,
    on a shard of the rows, trains one model of all.

    Args:
        train_loop_per_worker: the training function.
        lightgbm_config: how the workers are connected.
        options: of `DataParallelTrainer`. Those of Ray's earlier versions raise (`BoostingTrainer`).
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any] | None = None,
        *,
        lightgbm_config: LightGBMConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__(train_loop_per_worker, backend_config=lightgbm_config or LightGBMConfig(), **options)

    @classmethod
    def get_model(cls, checkpoint: Checkpoint) -> lightgbm.Booster:
        """The model of a checkpoint."""
        return RayTrainReportCallback.get_model(checkpoint)
