"""Environments whose observations say which episode and which step they belong to."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from runtime.rllib.env.env_errors import StepFailedRecreateEnvError


class Counter(gymnasium.Env):
    """Observations (number of the episode, step in it); the reward of a step is its number. Episodes have the given
    lengths, one after the other; every second one is truncated instead of terminated."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, lengths: tuple[int, ...] = (3, 1, 4), infos: bool = False) -> None:
        self.lengths, self.infos = lengths, infos
        self.episode, self.t = -1, 0
        self.actions: list[Any] = []

    def _observation(self) -> np.ndarray:
        return np.array([self.episode, self.t], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        self.t += 1
        over = self.t >= self.lengths[self.episode % len(self.lengths)]
        info = {"t": self.t} if self.infos else {}
        return (
            self._observation(),
            float(self.t),
            over and not self.episode % 2,
            over and bool(self.episode % 2),
            info,
        )


class Failing(Counter):
    """Raises an error in the given step of the first environment that is made; later ones work."""

    made = 0

    def __init__(self, fail_at: int, expected: bool = False) -> None:
        super().__init__(lengths=(3,))
        self.fails = type(self).made == 0
        type(self).made += 1
        self.fail_at, self.expected, self.steps = fail_at, expected, 0

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.fails and self.steps == self.fail_at:
            raise StepFailedRecreateEnvError("as planned") if self.expected else RuntimeError("broken")
        return super().step(action)


class Slow(Counter):
    """Sleeps in each step, in one of the runners."""

    def __init__(self, context: Any) -> None:
        super().__init__(lengths=(5,))
        self.seconds = context["seconds"] if context.worker_index == context["slow"] else 0.0

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(self.seconds)
        return super().step(action)


def vector(lengths: list[tuple[int, ...]], mode: AutoresetMode, infos: bool = False) -> Any:
    """A function that makes a vector environment with a `Counter` for each entry."""
    return lambda _context: SyncVectorEnv(
        [lambda each=each: Counter(each, infos) for each in lengths], autoreset_mode=mode
    )
