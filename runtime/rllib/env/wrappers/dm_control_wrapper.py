"""Tasks of the DeepMind Control Suite as gymnasium environments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


def _box_of(specs: Iterable[Any]) -> spaces.Box:
    """One flat box of all specs, in their order."""
    lows, highs = [], []
    for spec in specs:
        low, high = getattr(spec, "minimum", -np.inf), getattr(spec, "maximum", np.inf)
        lows.append(np.broadcast_to(low, spec.shape).ravel())
        highs.append(np.broadcast_to(high, spec.shape).ravel())
    return spaces.Box(
        np.concatenate(lows).astype(np.float32), np.concatenate(highs).astype(np.float32), dtype=np.float32
    )


def _flat(observation: Mapping[str, Any]) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in observation.values()]).astype(np.float32)


class DMCEnv(gymnasium.Env[Any, Any]):
    """A task of `dm_control.suite`. Actions are scaled from -1 ... 1; observations are one vector, or images.

    An episode whose last discount is above 0 was truncated by the time limit; otherwise it terminated.
    """

    metadata = {"render_modes": ["rgb_array"]}
    render_mode = "rgb_array"

    def __init__(
        self,
        domain_name: str,
        task_name: str,
        task_kwargs: dict[str, Any] | None = None,
        visualize_reward: bool = False,
        from_pixels: bool = False,
        height: int = 64,
        width: int = 64,
        camera_id: int = 0,
        frame_skip: int = 2,
        environment_kwargs: dict[str, Any] | None = None,
        channels_first: bool = True,
        preprocess: bool = True,
    ) -> None:
        """
        Args:
            domain_name, task_name, task_kwargs, visualize_reward, environment_kwargs: for `dm_control.suite.load`.
            from_pixels: whether observations are images instead of the state.
            height, width: of images, in pixels.
            camera_id: the camera of images.
            frame_skip: how many steps of the simulation one action takes; their rewards are added.
            channels_first: whether images are [3, height, width] instead of [height, width, 3].
            preprocess: whether images are float32 in -0.5 ... 0.5 instead of uint8.

        Raises:
            ImportError: `dm_control` is not installed.
        """
        try:
            from dm_control import suite
        except ImportError as error:
            raise ImportError("DMCEnv needs dm_control: pip install dm_control") from error
        self._env = suite.load(
            domain_name=domain_name,
            task_name=task_name,
            task_kwargs=task_kwargs,
            visualize_reward=visualize_reward,
            environment_kwargs=environment_kwargs,
        )
        self._from_pixels, self._channels_first, self._preprocess = from_pixels, channels_first, preprocess
        self._height, self._width, self._camera_id, self._frame_skip = height, width, camera_id, frame_skip
        self._true_action_space = _box_of([self._env.action_spec()])
        self.action_space = spaces.Box(-1.0, 1.0, shape=self._true_action_space.shape, dtype=np.float32)
        self.state_space = _box_of(self._env.observation_spec().values())
        if not from_pixels:
            self.observation_space: spaces.Space[Any] = self.state_space
        else:
            shape = (3, height, width) if channels_first else (height, width, 3)
            if preprocess:
                self.observation_space = spaces.Box(-0.5, 0.5, shape=shape, dtype=np.float32)
            else:
                self.observation_space = spaces.Box(0, 255, shape=shape, dtype=np.uint8)
        self.current_state: np.ndarray | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode. A seed also seeds the task."""
        super().reset(seed=seed)
        if seed is not None:
            self._env.task.random.seed(seed)
        return self._observed(self._env.reset()), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes `frame_skip` steps with one action in -1 ... 1. The info has the "internal_state" before them and the
        "discount"."""
        low, high = self._true_action_space.low, self._true_action_space.high
        true_action = low + (np.clip(action, -1.0, 1.0) + 1.0) / 2.0 * (high - low)
        info: dict[str, Any] = {"internal_state": self._env.physics.get_state().copy()}
        reward = 0.0
        for _ in range(self._frame_skip):
            step = self._env.step(true_action)
            reward += step.reward or 0.0
            if step.last():
                break
        info["discount"] = step.discount
        terminated = bool(step.last()) and not step.discount
        return self._observed(step), reward, terminated, bool(step.last()) and not terminated, info

    def _observed(self, step: Any) -> np.ndarray:
        self.current_state = _flat(step.observation)
        if not self._from_pixels:
            return self.current_state
        image: np.ndarray = self.render()
        if self._channels_first:
            image = image.transpose(2, 0, 1)
        return image.astype(np.float32) / 255.0 - 0.5 if self._preprocess else image.copy()

    def render(self) -> Any:
        """An image, uint8 [height, width, 3]."""
        return self._env.physics.render(height=self._height, width=self._width, camera_id=self._camera_id)

    def close(self) -> None:
        """Frees the simulation."""
        self._env.close()


class ActionClip(gymnasium.ActionWrapper[Any, Any, Any]):
    """Clips actions to -1 ... 1."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Args:
        env: with a Box action space.
        """
        super().__init__(env)
        inner = env.action_space
        self.action_space = spaces.Box(-1.0, 1.0, inner.shape, inner.dtype)

    def action(self, action: Any) -> Any:
        """The action that the environment gets."""
        return np.clip(action, -1.0, 1.0)
