"""A game that needs a memory."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class RepeatAfterMeEnv(gymnasium.Env[Any, Any]):
    """The action has to be the observation of some steps before.

    An action earns 1 if it is that observation, else -1; with continuous observations, minus the distance.

    Args:
        config: "continuous" (False: two values), "repeat_delay" (1: how many steps before), "episode_len" (100).
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        config = dict(config or {})
        self.observation_space: gymnasium.Space[Any] = (
            gymnasium.spaces.Box(-1.0, 1.0, (2,))
            if config.get("continuous")
            else gymnasium.spaces.Discrete(2)
        )
        self.action_space = self.observation_space
        self.delay = config.get("repeat_delay", 1)
        self.episode_len = config.get("episode_len", 100)
        self._seen: list[Any] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """See `gymnasium.Env.reset`."""
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._seen = [self.observation_space.sample()]
        return self._seen[-1], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`."""
        reward = 0.0
        if len(self._seen) > self.delay:
            wanted = self._seen[-1 - self.delay]
            if isinstance(self.action_space, gymnasium.spaces.Discrete):
                reward = 1.0 if action == wanted else -1.0
            else:
                reward = -float(np.sum(np.abs(np.asarray(action) - wanted)))
        self._seen.append(self.observation_space.sample())
        truncated = len(self._seen) > self.episode_len
        return self._seen[-1], reward, False, truncated, {}
