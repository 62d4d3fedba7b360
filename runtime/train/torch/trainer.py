"""Training with torch.distributed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runtime.train._api.checkpoint import Checkpoint
from runtime.train._api.config import RunConfig, ScalingConfig
from runtime.train._api.trainer import DataParallelTrainer
from runtime.train._api.validation import ValidationConfig
from runtime.train.data_config import DataConfig
from runtime.train.torch.config import TorchConfig


class TorchTrainer(DataParallelTrainer):
    """Runs a training function on several workers that form a process group of torch.distributed.

    The function uses `prepare_model` and `prepare_data_loader`, or `get_device` and torch alone: its environment is
    what torchrun gives to a program, except that the group is initialized already.

    Args:
        train_loop_per_worker: the training function. It takes `train_loop_config`, or nothing.
        train_loop_config: argument of the function.
        torch_config: how the group is formed.
        scaling_config: the workers.
        run_config: name, storage, failures and checkpoints of the run.
        datasets: data sets by name; each worker has a shard of them (`get_dataset_shard`).
        dataset_config: how they are divided.
        validation_config: how checkpoints are validated.
        metadata: deprecated in Ray.
        resume_from_checkpoint: what `get_checkpoint` gives before the run has a checkpoint of its own.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        validation_config: ValidationConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
    ) -> None:
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=torch_config or TorchConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
        )
