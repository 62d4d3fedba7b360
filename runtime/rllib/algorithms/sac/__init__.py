"""SAC: `SACConfig`, `SAC` and, imported on first use, its modules and learners."""

from __future__ import annotations

from runtime.rllib.algorithms.sac.sac import SAC, SACConfig

__all__ = ["SAC", "SACConfig"]
