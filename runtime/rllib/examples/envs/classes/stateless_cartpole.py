"""CartPole without velocities: an agent needs a memory."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

_SEEN = [0, 2]  # position and angle; the velocities, 1 and 3, are hidden


class StatelessCartPole(CartPoleEnv):
    """CartPole-v1 whose observations have the cart's position and the pole's angle only."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__()
        bounds = np.array([self.x_threshold * 2, self.theta_threshold_radians * 2], np.float32)
        self.observation_space = gymnasium.spaces.Box(-bounds, bounds, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """See `gymnasium.Env.reset`."""
        observation, info = super().reset(seed=seed, options=options)
        return observation[_SEEN], info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`."""
        observation, reward, terminated, truncated, info = super().step(action)
        return observation[_SEEN], float(reward), terminated, truncated, info
