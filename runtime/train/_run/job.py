"""What a driver gives to the controller of its run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runtime.train._api.config import RunConfig, ScalingConfig
from runtime.train._run.backend import Backend

if TYPE_CHECKING:
    from runtime.train._api.checkpoint import Checkpoint
    from runtime.train._api.validation import ValidationConfig
    from runtime.train.data_config import DataConfig


@dataclass
class Job:
    """What is to be trained.

    Attributes:
        function: the training function with its configuration.
        backend: what connects the workers.
        resume_from: the first checkpoint that `get_checkpoint` gives.
        metadata: see `TrainContext`.
        report_timeout_s: how long a rank waits for others, at most; None: without a limit.
        validation: how checkpoints are validated; None: they are not.
        copy_bytes: see `Session`.
    """

    function: Callable[[], Any]
    backend: Backend
    scaling: ScalingConfig
    run: RunConfig
    datasets: Mapping[str, Any]
    data_config: DataConfig
    resume_from: Checkpoint | None
    metadata: dict[str, Any]
    report_timeout_s: float | None
    validation: ValidationConfig | None = None
    copy_bytes: int = 0
