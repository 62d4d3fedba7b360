"""Environments, their episodes, and the runners that step through them."""

from __future__ import annotations

import importlib
from typing import Any

INPUT_ENV_SPACES = "__env__"
INPUT_ENV_SINGLE_SPACES = "__env_single__"

_MODULES = {
    "EnvContext": "env_context",
    "GroupAgentsWrapper": "wrappers.group_agents_wrapper",
    "MultiAgentEnv": "multi_agent_env",
    "ParallelPettingZooEnv": "wrappers.pettingzoo_env",
    "PettingZooEnv": "wrappers.pettingzoo_env",
}

__all__ = ["INPUT_ENV_SINGLE_SPACES", "INPUT_ENV_SPACES", *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
