"""Wrappers for Atari environments, as in the experiments of DeepMind (Mnih et al., 2015, "Human-level control through
deep reinforcement learning", methods)."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # of red, green and blue in gray (ITU-R BT.601)
_MOST_FRAMES = 108_000  # of an episode: 30 minutes


def is_atari(env: gymnasium.Env | str) -> bool:
    """Whether an environment, or a name of one, is an Atari game that gives images."""
    if isinstance(env, str):
        return env.startswith(("ALE/", "ale_py:"))
    shape = getattr(env.observation_space, "shape", None)
    return shape is not None and len(shape) > 2 and type(env.unwrapped).__name__ == "AtariEnv"


def get_wrapper_by_cls(env: gymnasium.Env, cls: type) -> gymnasium.Env | None:
    """The outermost wrapper of this class, or the environment itself if it is of it; None if there is none."""
    current: Any = env
    while not isinstance(current, cls):
        if not isinstance(current, gymnasium.Wrapper):
            return None
        current = current.env
    return current


class MonitorEnv(gymnasium.Wrapper):
    """Keeps the returns and lengths of whole games, while wrappers outside may cut them into lives."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._return: float | None = None
        self._steps = 0
        self._total_steps = 0
        self._returns: list[float] = []
        self._lengths: list[int] = []
        self._given = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        if self._return is not None:
            self._returns.append(self._return)
            self._lengths.append(self._steps)
        self._return, self._steps = 0.0, 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._return = (self._return or 0.0) + float(reward)
        self._steps += 1
        self._total_steps += 1
        return observation, float(reward), terminated, truncated, info

    def get_episode_rewards(self) -> list[float]:
        """Returns of the games that were played."""
        return self._returns

    def get_episode_lengths(self) -> list[int]:
        """Their lengths, in steps."""
        return self._lengths

    def get_total_steps(self) -> int:
        """Steps of all games."""
        return self._total_steps

    def next_episode_results(self) -> list[tuple[float, int]]:
        """Return and length of the games since the last call."""
        first, self._given = self._given, len(self._returns)
        return [*zip(self._returns[first:], self._lengths[first:], strict=True)]


class NoopResetEnv(gymnasium.Wrapper):
    """Begins each game with a random number of steps in which nothing is done (action 0), from 1 to `noop_max`."""

    def __init__(self, env: gymnasium.Env, noop_max: int = 30) -> None:
        super().__init__(env)
        self.noop_max = noop_max
        self.override_num_noops: int | None = None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        steps = self.override_num_noops
        if steps is None:
            steps = int(self.unwrapped.np_random.integers(1, self.noop_max + 1))
        for _ in range(steps):
            observation, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                observation, info = self.env.reset()
        return observation, info


class MaxAndSkipEnv(gymnasium.Wrapper):
    """Repeats each action `skip` times. The observation is the maximum of the last two, as sprites flicker."""

    def __init__(self, env: gymnasium.Env, skip: int = 4) -> None:
        super().__init__(env)
        self._skip = skip

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total, last = 0.0, None
        for number in range(self._skip):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            over = terminated or truncated
            if last is not None and (over or number == self._skip - 1):
                observation = np.maximum(observation, last)
            if over:
                break
            last = observation
        return observation, total, terminated, truncated, info


class EpisodicLifeEnv(gymnasium.Wrapper):
    """Ends an episode with each life; the game goes on in the next one."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.lives = 0
        self.was_real_terminated = True

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.was_real_terminated = terminated or truncated
        lives = self.unwrapped.ale.lives()
        if 0 < lives < self.lives:
            terminated = True
        self.lives = lives
        return observation, float(reward), terminated, truncated, info

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        if self.was_real_terminated:
            observation, info = self.env.reset(**kwargs)
        else:  # a life was lost
            observation, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                observation, info = self.env.reset(**kwargs)
        self.was_real_terminated = False
        self.lives = self.unwrapped.ale.lives()
        return observation, info


class FireResetEnv(gymnasium.Wrapper):
    """Fires after each reset, for games that stand still until then."""

    def __init__(self, env: gymnasium.Env) -> None:
        """
        Raises:
            ValueError: the game's action 1 does not fire.
        """
        super().__init__(env)
        meanings = env.unwrapped.get_action_meanings()
        if meanings[1:2] != ["FIRE"]:
            raise ValueError(f"The game has no action to fire as its action 1: {meanings}")

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.env.reset(**kwargs)
        observation, _, terminated, truncated, info = self.env.step(1)
        if terminated or truncated:
            observation, info = self.env.reset()
        return observation, info


class ClipRewardEnv(gymnasium.RewardWrapper):
    """Rewards are -1, 0 or 1."""

    def reward(self, reward: Any) -> float:
        return float(np.sign(reward))


class GrayScaleAndResize(gymnasium.ObservationWrapper):
    """Images of `dim` by `dim`, uint8 [dim, dim, 1], or with three colors if not `grayscale`. Each pixel is the mean of
    the area that it stands for."""

    def __init__(self, env: gymnasium.Env, dim: int = 84, grayscale: bool = True) -> None:
        super().__init__(env)
        height, width = env.observation_space.shape[:2]
        self._rows, self._columns = _area_weights(height, dim), _area_weights(width, dim)
        self._grayscale = grayscale
        self.observation_space = spaces.Box(0, 255, (dim, dim, 1 if grayscale else 3), np.uint8)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        image = observation.astype(np.float32)
        image = (image @ _LUMA)[..., None] if self._grayscale else image
        planes = self._rows @ image.transpose(2, 0, 1) @ self._columns.T
        return np.rint(planes).astype(np.uint8).transpose(1, 2, 0)


WarpFrame = GrayScaleAndResize


class NormalizedImageEnv(gymnasium.ObservationWrapper):
    """Images of floats from -1 to 1 instead of integers from 0 to 255."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(-1.0, 1.0, env.observation_space.shape, np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation.astype(np.float32) / np.float32(127.5) - np.float32(1.0)


class FrameStack(gymnasium.Wrapper):
    """The last `k` images, along the last dimension; the first image of an episode k times at its start."""

    def __init__(self, env: gymnasium.Env, k: int) -> None:
        super().__init__(env)
        self._frames: deque[np.ndarray] = deque(maxlen=k)
        space = env.observation_space
        self.observation_space = spaces.Box(
            np.repeat(space.low, k, axis=-1), np.repeat(space.high, k, axis=-1), dtype=space.dtype
        )

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        self._frames.extend([observation] * (self._frames.maxlen or 1))
        return np.concatenate(self._frames, axis=-1), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._frames.append(observation)
        return np.concatenate(self._frames, axis=-1), float(reward), terminated, truncated, info


def wrap_atari_for_new_api_stack(
    env: gymnasium.Env,
    dim: int = 64,
    frameskip: int = 4,
    framestack: int | None = None,
    grayscale: bool = True,
) -> gymnasium.Env:
    """The wrappers for Atari experiments: images [dim, dim, colors * framestack] of floats from -1 to 1.

    Make the environment with `frameskip=1`, so that frames are not skipped twice. Rewards stay as they are.

    Args:
        env: an Atari environment.
        dim: height and width of the images.
        frameskip: how often each action is repeated.
        framestack: how many of the images that remain are stacked; None: not at all.
        grayscale: whether to have one color.
    """
    env = NoopResetEnv(gymnasium.wrappers.TimeLimit(env, _MOST_FRAMES))
    if frameskip > 1:
        env = MaxAndSkipEnv(env, frameskip)
    env = EpisodicLifeEnv(env)
    if "FIRE" in env.unwrapped.get_action_meanings():
        env = FireResetEnv(env)
    env = NormalizedImageEnv(GrayScaleAndResize(env, dim, grayscale))
    return FrameStack(env, framestack) if framestack else env


def wrap_deepmind(
    env: gymnasium.Env, dim: int = 84, framestack: bool = True, noframeskip: bool = False
) -> gymnasium.Env:
    """The wrappers of DeepMind's experiments: images uint8 [dim, dim, 4]. Rewards stay as they are.

    Args:
        env: an Atari environment.
        dim: height and width of the images.
        framestack: whether four images are stacked.
        noframeskip: whether the environment skips no frames itself, so that each action is to be repeated four times.
    """
    env = NoopResetEnv(MonitorEnv(env))
    if noframeskip:
        env = MaxAndSkipEnv(env, 4)
    env = EpisodicLifeEnv(env)
    if "FIRE" in env.unwrapped.get_action_meanings():
        env = FireResetEnv(env)
    env = GrayScaleAndResize(env, dim)
    return FrameStack(env, 4) if framestack else env


def _area_weights(source: int, target: int) -> np.ndarray:
    """float32 [target, source]: how much of each source pixel is in each target pixel, as parts of 1."""
    edges = np.arange(target + 1) * source / target
    pixels = np.arange(source)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights: np.ndarray = (np.clip(overlap, 0, None) * target / source).astype(np.float32)
    return weights
