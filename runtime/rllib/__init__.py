"""Reinforcement learning with the API of Ray's RLlib.

An `Algorithm` (`algorithms`) has environment runners (`env`), which sample, and learners (`core.learner`), which update
a module (`core.rl_module`). Experience moves as columns (`_core.rollout`). Names are imported on first use; torch only
loads when a module is made. This package uses the engine's public API, `runtime._extension`, `runtime._controllers`,
`runtime.data`, `runtime.train` and `runtime.tune`.
"""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "runtime.rllib.core.columns": ("Columns",),
    "runtime.rllib.env.multi_agent_env": ("MultiAgentEnv",),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
