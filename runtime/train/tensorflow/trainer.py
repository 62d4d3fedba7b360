"""Training with TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.train._api.trainer import DataParallelTrainer
from runtime.train.tensorflow._backend import TensorflowConfig


class TensorflowTrainer(DataParallelTrainer):
    """Runs a training function on several workers, where `tf.distribute.MultiWorkerMirroredStrategy` finds the others.

    Args:
        train_loop_per_worker: the training function.
        tensorflow_config: how the workers are connected.
        options: of `DataParallelTrainer`.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        tensorflow_config: TensorflowConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            train_loop_per_worker, backend_config=tensorflow_config or TensorflowConfig(), **options
        )
