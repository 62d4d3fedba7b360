"""SAC: its settings and the algorithm; modules and learners are in `torch`."""

from __future__ import annotations

from runtime.rllib.algorithms.sac.sac import SAC, SACConfig

__all__ = ["SAC", "SACConfig"]
