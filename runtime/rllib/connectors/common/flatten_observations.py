"""Observations as vectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import numpy as np
from gymnasium import spaces

from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.trees import Tree
from runtime.rllib.core.columns import Columns

from ..connector_v2 import Batch
from ..spaces import Flattener
from ..vector_step import VectorStep
from .either_pipeline import EitherPipelineConnector


class FlattenObservations(EitherPipelineConnector):
    """Makes a float32 vector of each observation: all its numbers, discrete ones as one-hot vectors.

    Dicts are flattened in the order of their sorted keys. The vectors replace the observations in the episodes.

    Args:
        multi_agent: Whether the observation space is one of several agents, by agent id.
        agent_ids: Only observations of these agents are flattened. None: of all.
        as_learner_connector: Whether the piece is in a learner pipeline. Then it adds all observations of the episodes
            to the batch and leaves the episodes alone.
        keys_to_remove: Keys of Dict spaces (at the top, or below the agent's id) that are left out.
    """

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        multi_agent: bool = False,
        agent_ids: Collection[Any] | None = None,
        keys_to_remove: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        self._multi_agent = multi_agent
        self._agent_ids = agent_ids
        self._keys_to_remove = frozenset(keys_to_remove or ())
        # Of the input space without the removed keys, by agent id (None for single agents).
        self._used: dict[Any, Any] = {}
        self._flatteners: dict[Any, Flattener] = {}
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        if not self._multi_agent:
            by_agent = {None: input_observation_space}
        elif isinstance(input_observation_space, spaces.Dict):
            by_agent = dict(input_observation_space.spaces)
        else:
            raise ValueError(
                "With multi_agent=True the observation space must be a Dict space of agents, not "
                f"{input_observation_space}"
            )
        self._used = {agent: self._without_removed(space) for agent, space in by_agent.items()}
        self._flatteners = {
            agent: Flattener(space) for agent, space in self._used.items() if self._flattens(agent)
        }
        result = {
            agent: spaces.Box(-np.inf, np.inf, (self._flatteners[agent].size,), np.float32)
            if agent in self._flatteners
            else space
            for agent, space in self._used.items()
        }
        return spaces.Dict(result) if self._multi_agent else result[None]

    def _without_removed(self, space: Any) -> Any:
        if not self._keys_to_remove:
            return space
        if not isinstance(space, spaces.Dict):
            raise ValueError(f"keys_to_remove= needs a Dict observation space, not {space}")
        return spaces.Dict(
            {key: below for key, below in space.spaces.items() if key not in self._keys_to_remove}
        )

    def _flattens(self, agent_id: Any) -> bool:
        return not self._multi_agent or self._agent_ids is None or agent_id in self._agent_ids

    def _flat(self, value: Tree, agent_id: Any, *, batched: bool) -> Any:
        agent_id = agent_id if self._multi_agent else None
        if agent_id in self._flatteners:
            return self._flatteners[agent_id](value, batched=batched)
        if agent_id not in self._used:
            raise ValueError(
                f"FlattenObservations has no space for agent {agent_id!r}: its input_observation_space must be that "
                "of the observations"
            )
        return {key: value[key] for key in self._used[agent_id].spaces} if self._keys_to_remove else value

    def __call__(
        self,
        *,
        rl_module: Any,
        batch: Batch,
        episodes: list[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> Batch:
        if self._as_learner_connector:
            for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
                observations = episode.get_observations(slice(0, len(episode)))
                if isinstance(observations, list):
                    rows = [self._flat(value, episode.agent_id, batched=False) for value in observations]
                    observations = np.stack(rows) if rows else np.zeros((0, 0), np.float32)
                else:
                    observations = self._flat(observations, episode.agent_id, batched=True)
                self.add_n_batch_items(batch, Columns.OBS, observations, len(episode), episode)
            return batch
        for episode in self.single_agent_episode_iterator(episodes):
            flat = self._flat(episode.get_observations(-1), episode.agent_id, batched=False)
            self.replace_last_observation(episode, flat)
        return batch

    def on_vector_step(self, step: VectorStep) -> Tree:
        return self._flat(step.observations, None, batched=True)

    def on_rollout(self, rollout: Rollout) -> Rollout:
        flat = self._flat(rollout.columns[Columns.OBS], None, batched=True)
        final = self._flat(rollout.final_obs, None, batched=True)
        return dataclasses.replace(rollout, columns={**rollout.columns, Columns.OBS: flat}, final_obs=final)
