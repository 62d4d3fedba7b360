"""Training with LightGBM."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runtime.train._api.trainer import DataParallelTrainer
from runtime.train.lightgbm._backend import LightGBMConfig
from runtime.train.lightgbm._callback import RayTrainReportCallback

if TYPE_CHECKING:
    import lightgbm

    from runtime.train._api.checkpoint import Checkpoint


class LightGBMTrainer(DataParallelTrainer):
    """Runs a training function on several workers. `lightgbm.train` with `get_network_params()` among its parameters,
    on a shard of the rows, trains one model of all.

    Args:
        train_loop_per_worker: the training function.
        lightgbm_config: how the workers are connected.
        options: of `DataParallelTrainer`.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        lightgbm_config: LightGBMConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__(train_loop_per_worker, backend_config=lightgbm_config or LightGBMConfig(), **options)

    @classmethod
    def get_model(cls, checkpoint: Checkpoint) -> lightgbm.Booster:
        """The model of a checkpoint."""
        return RayTrainReportCallback.get_model(checkpoint)
