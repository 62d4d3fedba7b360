"""The connector pipelines of a single-agent runner."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime.rllib._core import trees
from runtime.rllib._core.trees import Tree
from runtime.rllib._core.types import Config
from runtime.rllib.connectors.vector_step import VectorStep


def has_own_pipelines(config: Config) -> bool:
    """Whether the configuration changes the default connectors between environment and module."""
    return (
        config._env_to_module_connector is not None
        or config._module_to_env_connector is not None
        or not config.add_default_connectors_to_env_to_module_pipeline
        or not config.add_default_connectors_to_module_to_env_pipeline
    )


class ObservationPieces:
    """The pieces of an env-to-module pipeline that work on arrays, applied to all environments of a runner."""

    def __init__(self, pieces: Sequence[Any], num_envs: int) -> None:
        self._pieces = pieces
        self._all = np.arange(num_envs)

    def of_reset(self, observations: Tree, envs: np.ndarray | None = None) -> Tree:
        """Observations [N, ...] behind the pieces, the first ones of episodes.

        Args:
            envs: the numbers of their environments; all by default.
        """
        envs = self._all if envs is None else envs
        return self._passed(VectorStep(observations, envs, np.ones(len(envs), bool)))

    def of_step(
        self,
        observations: Tree,
        resetting: np.ndarray | None,
        finals: dict[int, Tree] | None,
        actions: Tree,
        rewards: np.ndarray,
    ) -> tuple[Tree, dict[int, Tree] | None]:
        """The same after a step.

        Args:
            observations: [N, ...] each, to go on with.
            resetting: bool [N], where this was the environment's reset.
            finals: by environment, the last observations of episodes whose environments were reset in the step.
            actions: [N, ...] each.
            rewards: [N].

        Returns:
            The observations to go on with, and the last ones, behind the pieces.
        """
        started = np.zeros(len(self._all), bool) if resetting is None else resetting
        if not finals:
            return self._passed(VectorStep(observations, self._all, started, actions, rewards)), finals
        lanes = np.fromiter(finals, np.int64, len(finals))
        ends = trees.tree_map(np.array, observations)
        trees.put(ends, lanes, trees.stack([finals[lane] for lane in lanes.tolist()]))
        ends = self._passed(VectorStep(ends, self._all, started, actions, rewards))
        firsts = self.of_reset(trees.take(observations, lanes), lanes)
        last = {lane: trees.tree_map(np.copy, trees.take(ends, lane)) for lane in lanes.tolist()}
        following = trees.tree_map(np.array, ends)
        trees.put(following, lanes, firsts)
        return following, last

    def _passed(self, step: VectorStep) -> Tree:
        for piece in self._pieces:
            step = dataclasses.replace(step, observations=piece.on_vector_step(step))
        return step.observations
