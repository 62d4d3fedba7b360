"""Training with PyTorch Lightning inside of a `TorchTrainer`. Names are imported on first use."""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "runtime.train.lightning._callback": ("RayTrainReportCallback",),
    "runtime.train.lightning._environment": ("RayLightningEnvironment", "prepare_trainer"),
    "runtime.train.lightning._strategies": ("RayDDPStrategy", "RayDeepSpeedStrategy", "RayFSDPStrategy"),
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'runtime.train.lightning' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
