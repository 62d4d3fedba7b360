"""An environment of any spaces whose observations and rewards are random."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class RandomEnv(gymnasium.Env[Any, Any]):
    """Samples its observations and rewards from spaces.

    Args:
        config: "observation_space" (default: Discrete(2)), "action_space" (Discrete(2)), "reward_space" (scalar Box
            from -1 to 1), "p_terminated" (0.1: the probability that a step ends the episode), "max_episode_len"
            (None), "check_action_bounds" (False: whether an action outside of the space raises ValueError),
            "static_samples" (False: whether every step has the same observation and reward).
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        config = dict(config or {})
        self.observation_space = config.get("observation_space", gymnasium.spaces.Discrete(2))
        self.action_space = config.get("action_space", gymnasium.spaces.Discrete(2))
        self.reward_space = config.get("reward_space", gymnasium.spaces.Box(-1.0, 1.0, (), np.float32))
        self.p_terminated = config.get("p_terminated", 0.1)
        self.max_episode_len = config.get("max_episode_len")
        self.check_action_bounds = config.get("check_action_bounds", False)
        static = config.get("static_samples", False)
        self._static = (
            (self.observation_space.sample(), float(self.reward_space.sample())) if static else None
        )
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """See `gymnasium.Env.reset`. A seed makes the episode's samples the same each time."""
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
            self.reward_space.seed(seed)
        self.steps = 0
        return self._static[0] if self._static else self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`."""
        if self.check_action_bounds and not self.action_space.contains(action):
            raise ValueError(f"The action {action!r} is not in {self.action_space}")
        self.steps += 1
        observation, reward = self._static or (
            self.observation_space.sample(),
            float(self.reward_space.sample()),
        )
        terminated = bool(self.np_random.random() < self.p_terminated)
        truncated = not terminated and self.max_episode_len is not None and self.steps >= self.max_episode_len
        return observation, reward, terminated, truncated, {}
