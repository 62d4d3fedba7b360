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
