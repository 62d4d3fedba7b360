"""DQN: `DQNConfig`, `DQN` and, imported on first use, its modules and learners."""

from __future__ import annotations

from runtime.rllib.algorithms.dqn.dqn import DQN, DQNConfig

__all__ = ["DQN", "DQNConfig"]
