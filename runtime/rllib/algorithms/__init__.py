"""Algorithms: one package each, with a class and its settings. Names are imported on first use.

`algorithm_config` has the settings that all share, `algorithm` the base class, `registry` the names for experiments.
"""

from __future__ import annotations

import importlib
from typing import Any

from runtime.rllib.utils.framework import require

require("numpy")  # for settings; torch and gymnasium when an algorithm is built

_PACKAGES = {
    "Algorithm": "algorithm",
    "AlgorithmConfig": "algorithm_config",
    "APPO": "appo",
    "APPOConfig": "appo",
    "BC": "bc",
    "BCConfig": "bc",
    "CQL": "cql",
    "CQLConfig": "cql",
    "DQN": "dqn",
    "DQNConfig": "dqn",
    "DreamerV3": "dreamerv3",
    "DreamerV3Config": "dreamerv3",
    "IMPALA": "impala",
    "IMPALAConfig": "impala",
    "IQL": "iql",
    "IQLConfig": "iql",
    "MARWIL": "marwil",
    "MARWILConfig": "marwil",
    "PPO": "ppo",
    "PPOConfig": "ppo",
    "SAC": "sac",
    "SACConfig": "sac",
    "TQC": "tqc",
    "TQCConfig": "tqc",
}

__all__ = sorted(_PACKAGES)


def __getattr__(name: str) -> Any:
    if name not in _PACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PACKAGES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES})
