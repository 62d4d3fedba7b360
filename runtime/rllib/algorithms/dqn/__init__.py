"""DQN: its settings and the algorithm; modules and learners are in `torch`."""

from __future__ import annotations

from runtime.rllib.algorithms.dqn.dqn import DQN, DQNConfig

__all__ = ["DQN", "DQNConfig"]
