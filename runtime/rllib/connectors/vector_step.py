"""What a piece sees of one step of all environments of a runner."""

from __future__ import annotations

import dataclasses

import numpy as np

from runtime.rllib._core.trees import Tree


@dataclasses.dataclass(slots=True)
class VectorStep:
    """New observations of N environments of a runner.

    Every observation passes exactly once: those after a step, those after a reset, and the last one of an episode.

    observations: tree of arrays [N, ...], of the observation space that the piece gets. A piece must not write to them.
    envs: int64 [N], which environments they are of: numbers from 0 below the runner's number of environments.
    started: bool [N], True where the observation is the first of an episode.
    actions: tree of arrays [N, ...], the module's actions that led to the observations; arbitrary where `started`, None
        if all are.
    rewards: float32 [N] of those actions; 0 where `started`.
    """

    observations: Tree
    envs: np.ndarray
    started: np.ndarray
    actions: Tree | None = None
    rewards: np.ndarray | None = None


class LastValues:
    """The last values of each environment since its episode began, joined along the last dimension, the newest last.
    Zeros are before the first.

    Args:
        size: The last dimension of what is joined.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._rows: np.ndarray | None = None  # [environments of a runner, ..., size]

    def pushed(self, new: np.ndarray, step: VectorStep) -> np.ndarray:
        """What is joined [N, ..., size], with new values [N, ..., width] of the environments of a step."""
        shape, wanted = (*new.shape[1:-1], self._size), int(step.envs.max(initial=-1)) + 1
        if self._rows is None:
            self._rows = np.zeros((wanted, *shape), new.dtype)
        elif len(self._rows) < wanted:
            self._rows = np.concatenate([self._rows, np.zeros((wanted - len(self._rows), *shape), new.dtype)])
        result, width = self._rows[step.envs], new.shape[-1]
        result[step.started] = 0
        result[..., :-width] = result[..., width:]
        result[..., -width:] = new
        self._rows[step.envs] = result
        return result
