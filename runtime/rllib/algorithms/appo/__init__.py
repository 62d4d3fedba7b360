"""Asynchronous PPO."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .appo import APPO, APPOConfig

if TYPE_CHECKING:
    from .torch.appo_torch_learner import APPOTorchLearner

__all__ = ["APPO", "APPOConfig", "APPOTorchLearner"]


def __getattr__(name: str) -> Any:
    if name == "APPOTorchLearner":  # needs torch
        return importlib.import_module(f"{__name__}.torch.appo_torch_learner").APPOTorchLearner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
