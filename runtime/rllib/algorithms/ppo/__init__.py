"""Proximal policy optimization."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .ppo import PPO, PPOConfig

if TYPE_CHECKING:
    from .torch.ppo_torch_learner import PPOTorchLearner

__all__ = ["PPO", "PPOConfig", "PPOTorchLearner"]


def __getattr__(name: str) -> Any:
    if name == "PPOTorchLearner":  # needs torch
        return importlib.import_module(f"{__name__}.torch.ppo_torch_learner").PPOTorchLearner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
