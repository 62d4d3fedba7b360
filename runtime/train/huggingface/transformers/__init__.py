"""Training with Hugging Face's Transformers inside of a `TorchTrainer`. Names are imported on first use."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

_MODULE_OF = {
    "RayTrainReportCallback": "runtime.train.huggingface.transformers._callback",
    "prepare_trainer": "runtime.train.huggingface.transformers._trainer",
}

__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'runtime.train.huggingface.transformers' has no attribute {name!r}")
    for library in ("torch", "transformers"):
        if importlib.util.find_spec(library) is None:
            raise ImportError(
                f"runtime.train.huggingface.transformers needs {library}, which is not installed here: "
                "pip install torch transformers accelerate"
            )
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
