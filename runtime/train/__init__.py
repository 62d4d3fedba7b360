"""Training functions that run on many workers and go on after failures, with Ray Train's API.

A trainer's `fit` starts the run's controller (`_run`), which is a pure state machine (`_core`). Names are imported on
first use; torch only loads when a worker needs it. This package uses the engine's public API, `runtime._extension`
and `runtime._controllers`.
"""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "runtime.train._api.callbacks": ("UserCallback",),
    "runtime.train._api.checkpoint": ("Checkpoint",),
    "runtime.train._api.config": (
        "CheckpointConfig",
        "CheckpointConsistencyMode",
        "CheckpointUploadMode",
        "FailureConfig",
        "LoggingConfig",
        "RunConfig",
        "ScalingConfig",
    ),
    "runtime.train._api.context": ("TrainContext",),
    "runtime.train._api.exceptions": (
        "ControllerError",
        "PreemptionError",
        "StorageError",
        "TrainingFailedError",
        "WorkerGroupError",
    ),
    "runtime.train._api.preemption": ("PreemptionInfo",),
    "runtime.train._api.reporting": (
        "TRAIN_DATASET_KEY",
        "ReportedCheckpoint",
        "ReportedCheckpointStatus",
        "get_all_reported_checkpoints",
        "get_checkpoint",
        "get_context",
        "get_dataset_shard",
        "get_preemption_info",
        "report",
    ),
    "runtime.train._api.result": ("Result",),
    "runtime.train._api.trainer": ("BackendConfig",),
    "runtime.train._api.validation": ("ValidationConfig", "ValidationFn", "ValidationTaskConfig"),
    "runtime.train.data_config": ("DataConfig",),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}
_PACKAGES = ("collective", "huggingface", "lightgbm", "lightning", "tensorflow", "torch", "v2", "xgboost")

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"runtime.train.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES})
