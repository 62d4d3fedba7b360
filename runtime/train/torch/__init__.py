"""Training with PyTorch. Names are imported on first use, torch with those that need it."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

_PUBLIC = {
    "runtime.train.torch.checkpoint": ("TorchCheckpoint",),
    "runtime.train.torch.config": ("TorchConfig",),
    "runtime.train.torch.trainer": ("TorchTrainer",),
    "runtime.train.torch._deprecated": ("accelerate", "backward", "prepare_optimizer"),
    "runtime.train.torch._devices": ("get_device", "get_devices"),
    "runtime.train.torch._loaders": ("prepare_data_loader",),
    "runtime.train.torch._models": ("prepare_model",),
    "runtime.train.torch._reproducibility": ("enable_reproducibility",),
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'runtime.train.torch' has no attribute {name!r}")
    if importlib.util.find_spec("torch") is None:
        raise ImportError("runtime.train.torch needs PyTorch, which is not installed here: pip install torch")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
