"""Environments, their episodes, and the runners that step through them."""

from __future__ import annotations

import importlib
from typing import Any

INPUT_ENV_SPACES = "__env__"
INPUT_ENV_SINGLE_SPACES = "__env_single__"

_PUBLIC = {
    "EnvContext": "env_context",
    "GroupAgentsWrapper": "wrappers.group_agents_wrapper",
    "MultiAgentEnv": "multi_agent_env",
    "ParallelPettingZooEnv": "wrappers.pettingzoo_env",
    "PettingZooEnv": "wrappers.pettingzoo_env",
}

__all__ = ["INPUT_ENV_SINGLE_SPACES", "INPUT_ENV_SPACES", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
