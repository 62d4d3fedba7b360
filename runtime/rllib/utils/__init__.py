"""Functions that all parts of RLlib use. Names are imported on first use."""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "annotations": ("DeveloperAPI", "PublicAPI", "override"),
    "deprecation": ("deprecation_warning",),
    "framework": ("try_import_jax", "try_import_tf", "try_import_tfp", "try_import_torch"),
    "nested": ("flatten_dict", "force_list", "force_tuple", "merge_dicts", "unflatten_dict"),
    "numpy": (
        "LARGE_INTEGER",
        "MAX_LOG_NN_OUTPUT",
        "MIN_LOG_NN_OUTPUT",
        "SMALL_NUMBER",
        "fc",
        "lstm",
        "one_hot",
        "relu",
        "sigmoid",
        "softmax",
    ),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
