"""Learners: what turns experience into gradient steps, alone or in a group of actors."""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {
    "Learner": "runtime.rllib.core.learner.learner",
    "LearnerGroup": "runtime.rllib.core.learner.learner_group",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
