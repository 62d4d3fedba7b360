"""Modules: the networks that act, and what they give to losses."""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "default_model_config": ("DefaultModelConfig",),
    "multi_rl_module": ("MultiRLModule", "MultiRLModuleSpec", "validate_module_id"),
    "rl_module": ("RLModule", "RLModuleSpec"),
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
