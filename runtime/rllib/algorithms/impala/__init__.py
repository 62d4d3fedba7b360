"""Importance-weighted actor-learners."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .impala import IMPALA, IMPALAConfig

if TYPE_CHECKING:
    from .torch.impala_torch_learner import IMPALATorchLearner

__all__ = ["IMPALA", "IMPALAConfig", "IMPALATorchLearner"]


def __getattr__(name: str) -> Any:
    if name == "IMPALATorchLearner":  # needs torch
        return importlib.import_module(f"{__name__}.torch.impala_torch_learner").IMPALATorchLearner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
