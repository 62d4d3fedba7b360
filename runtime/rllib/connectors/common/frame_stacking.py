"""The last observations as one."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from runtime.rllib._core import trees
from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.trees import Tree
from runtime.rllib.core.columns import Columns

from .. import spaces as space_functions
from ..connector_v2 import Batch
from ..vector_step import LastValues, VectorStep
from .either_pipeline import EitherPipelineConnector


class FrameStacking(EitherPipelineConnector):
    """Stacks an observation [..., 1] and those before it to [..., num_frames], the newest last.

    Zeros precede an episode. Called with episodes, the stack is only in the batch, so a learner pipeline needs the
    piece, too, with `as_learner_connector=True`. On columns, the rollout has the stacks, and the learner's piece leaves
    them as they are.

    Args:
        num_frames: The number of observations in a stack.
        multi_agent: Whether the observation space is one of several agents, by agent id.
        as_learner_connector: Whether the piece is in a learner pipeline.
    """

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        num_frames: int = 1,
        multi_agent: bool = False,
        **kwargs: Any,
    ) -> None:
        self.num_frames = num_frames
        self._multi_agent = multi_agent
        self._stacks: Tree = None  # a `LastValues` per leaf of observations
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        if self._multi_agent:
            agents = input_observation_space.spaces.items()
            return spaces.Dict(
                {agent: space_functions.map_space(self._stacked_space, space) for agent, space in agents}
            )
        return space_functions.map_space(self._stacked_space, input_observation_space)

    def _stacked_space(self, space: Any) -> Any:
        if (
            not isinstance(space, spaces.Box)
            or not space.shape
            or space.shape[-1] not in (1, self.num_frames)
        ):
            raise ValueError(f"Frames are stacked in Box spaces whose last dimension is 1, not in {space}")
        if space.shape[-1] == self.num_frames:
            return space
        return spaces.Box(
            np.repeat(space.low, self.num_frames, axis=-1),
            np.repeat(space.high, self.num_frames, axis=-1),
            dtype=space.dtype.type,
        )

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
        for episode in self.single_agent_episode_iterator(episodes, not self._as_learner_connector):
            if self._as_learner_connector:
                stacks = self._all_stacks(episode)
                self.add_n_batch_items(batch, Columns.OBS, stacks, len(episode), episode)
                continue
            frames = episode.get_observations(slice(-self.num_frames, None), fill=0.0)
            stack = trees.tree_map(lambda *leaves: np.concatenate(leaves, axis=-1), *frames)
            self.add_batch_item(batch, Columns.OBS, stack, episode)
        return batch

    def _all_stacks(self, episode: Any) -> Tree:
        """Tree of arrays [steps, ..., num_frames]."""
        steps = len(episode)
        observations = episode.get_observations(slice(0, steps))
        if isinstance(observations, list):
            observations = trees.stack(observations)
        if self._are_stacks(observations):
            return observations
        frames = episode.get_observations(
            slice(1 - self.num_frames, steps), neg_index_as_lookback=True, fill=0.0
        )
        if isinstance(frames, list):
            frames = trees.stack(frames)
        # A window of num_frames steps along time, which becomes the last dimension.
        return trees.tree_map(
            lambda leaf: np.ascontiguousarray(
                np.lib.stride_tricks.sliding_window_view(leaf[..., 0], self.num_frames, axis=0)[:steps]
            ),
            frames,
        )

    def _are_stacks(self, observations: Tree) -> bool:
        return all(leaf.shape[-1] == self.num_frames for leaf in trees.leaves(observations))

    def on_vector_step(self, step: VectorStep) -> Tree:
        if self._stacks is None:
            self._stacks = trees.tree_map(lambda _: LastValues(self.num_frames), step.observations)
        return trees.tree_map(lambda stacks, new: stacks.pushed(new, step), self._stacks, step.observations)

    def on_rollout(self, rollout: Rollout) -> Rollout:
        """The rollout as it is: its observations are stacks already.

        Raises:
            ValueError: they are not, because no env-to-module piece stacked them.
        """
        if not self._are_stacks(rollout.columns[Columns.OBS]):
            raise ValueError(
                f"The observations are no stacks of {self.num_frames} frames. Add "
                f"FrameStackingEnvToModule(num_frames={self.num_frames}) to the env-to-module connectors"
            )
        return rollout
