"""What a run of training ends with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime.train._api.checkpoint import Checkpoint
from runtime.train._api.exceptions import TrainingFailedError


@dataclass
class Result:
    """The result of `fit`.

    Attributes:
        metrics: the last of rank 0; None: it reported nothing.
        checkpoint: the latest; None: there is none.
        error: why the run failed.
        path: of the run's folder.
        best_checkpoints: those that are kept, with the metrics of rank 0.
        return_value: of the training function on rank 0.
    """

    metrics: dict[str, Any] | None
    checkpoint: Checkpoint | None
    error: TrainingFailedError | None
    path: str
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]]
    return_value: Any = None
