"""Ray's older name of PPO's default module."""

from __future__ import annotations

from .default_ppo_rl_module import DefaultPPORLModule as PPORLModule

__all__ = ["PPORLModule"]
