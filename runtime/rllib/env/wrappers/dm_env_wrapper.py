"""Environments with DeepMind's `dm_env` API as gymnasium environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


def space_of(spec: Any) -> gymnasium.Space[Any]:
    """The gymnasium space of a `dm_env` spec, or of a dict of specs.

    Raises:
        ValueError: the spec has no such space.
    """
    from dm_env import specs

    if isinstance(spec, dict):
        return spaces.Dict({key: space_of(part) for key, part in spec.items()})
    if isinstance(spec, specs.DiscreteArray):
        return spaces.Discrete(int(spec.num_values))
    if isinstance(spec, specs.BoundedArray):
        low = np.broadcast_to(spec.minimum, spec.shape).astype(spec.dtype)
        high = np.broadcast_to(spec.maximum, spec.shape).astype(spec.dtype)
        return spaces.Box(low, high, dtype=spec.dtype)
    if isinstance(spec, specs.Array) and np.issubdtype(spec.dtype, np.floating):
        return spaces.Box(-np.inf, np.inf, shape=spec.shape, dtype=spec.dtype)
    raise ValueError(
        f"There is no gymnasium space for the spec {spec!r}. Wrap the environment to give it bounds"
    )


class DMEnv(gymnasium.Env[Any, Any]):
    """A `dm_env.Environment` as a gymnasium environment.

    An episode whose last discount is above 0 was truncated; otherwise it terminated.
    """

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, dm_env: Any) -> None:
        """Args:
        dm_env: a `dm_env.Environment`.
        """
        self._env = dm_env
        self._prev_obs: Any = None
        self.observation_space = space_of(dm_env.observation_spec())
        self.action_space = space_of(dm_env.action_spec())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode. `dm_env` has no seeds: seed the environment when you make it."""
        super().reset(seed=seed)
        step = self._env.reset()
        self._prev_obs = step.observation
        return step.observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Moves on by one step. The info has the "discount"."""
        step = self._env.step(action)
        self._prev_obs = step.observation
        truncated = bool(step.last() and step.discount)
        return (
            step.observation,
            float(step.reward or 0.0),
            bool(step.last()) and not truncated,
            truncated,
            {"discount": step.discount},
        )

    def render(self) -> Any:
        """The last observation, which is an image in pixel environments.

        Raises:
            ValueError: the environment has not been reset.
        """
        if self._prev_obs is None:
            raise ValueError("There is nothing to render before reset()")
        return self._prev_obs

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()
