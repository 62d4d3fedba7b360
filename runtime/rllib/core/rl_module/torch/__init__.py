"""Modules in torch."""

from __future__ import annotations

from .torch_rl_module import TorchRLModule

__all__ = ["TorchRLModule"]
