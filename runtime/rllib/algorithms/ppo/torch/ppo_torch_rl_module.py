"""Ray's older name of PPO's default module."""

from __future__ import annotations

from .default_ppo_torch_rl_module import DefaultPPOTorchRLModule as PPOTorchRLModule

__all__ = ["PPOTorchRLModule"]
