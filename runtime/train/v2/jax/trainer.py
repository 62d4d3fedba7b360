"""Training with JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.train._api.config import ScalingConfig
from runtime.train._api.trainer import DataParallelTrainer
from runtime.train.v2.jax._backend import JaxConfig


class JaxTrainer(DataParallelTrainer):
    """Runs a training function on several workers that are processes of one JAX program (`jax.distributed`).

    Args:
        train_loop_per_worker: the training function.
        jax_config: how the workers are connected. Default: GPUs if `scaling_config` has them, otherwise CPUs.
        scaling_config: the workers.
        options: of `DataParallelTrainer`.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        jax_config: JaxConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        **options: Any,
    ) -> None:
        scaling = scaling_config or ScalingConfig()
        super().__init__(
            train_loop_per_worker,
            backend_config=jax_config or JaxConfig(use_gpu=scaling.use_gpu),
            scaling_config=scaling,
            **options,
        )
