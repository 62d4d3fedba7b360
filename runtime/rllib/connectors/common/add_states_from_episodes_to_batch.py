"""Default piece: the states of recurrent modules."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from runtime.rllib._core import trees
from runtime.rllib._core.types import DEFAULT_MODULE_ID
from runtime.rllib.core.columns import Columns
from runtime.rllib.utils.numpy import convert_to_numpy

from ..connector_v2 import Batch, is_multi_module
from .either_pipeline import EitherPipelineConnector


class AddStatesFromEpisodesToBatch(EitherPipelineConnector):
    """Adds "state_in" for stateful modules: the last "state_out" of each episode, or the module's initial state.

    For a learner there is one for each chunk of `max_seq_len` steps: the state before the chunk's first step.
    """

    is_default_piece: ClassVar[bool] = True

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
        if rl_module is None or not rl_module.is_stateful() or Columns.STATE_IN in batch:
            return batch
        for episode in self.single_agent_episode_iterator(episodes, not self._as_learner_connector):
            module = module_of(rl_module, episode.module_id)
            if not module.is_stateful():
                continue
            if self._as_learner_connector:
                max_seq_len = max_seq_len_of(module)
                states = _states_before_chunks(episode, module, max_seq_len)
                count = math.ceil(len(episode) / max_seq_len)
                self.add_n_batch_items(batch, Columns.STATE_IN, states, count, episode)
            elif (
                len(episode) == 0 and episode.t_started == 0
            ) or Columns.STATE_OUT not in episode.extra_model_outputs:
                self.add_batch_item(batch, Columns.STATE_IN, _initial_state(module), episode)
            else:
                state = episode.get_extra_model_outputs(Columns.STATE_OUT, -1)
                self.add_batch_item(batch, Columns.STATE_IN, state, episode)
        return batch


def module_of(rl_module: Any, module_id: str | None) -> Any:
    """The module of an episode with this module id."""
    if not is_multi_module(rl_module):
        return rl_module
    return rl_module[DEFAULT_MODULE_ID if module_id is None else module_id]


def max_seq_len_of(module: Any) -> int:
    """The length of the chunks in which a stateful module learns.

    Raises:
        ValueError: its model configuration has none.
    """
    settings = module.model_config
    found = (
        settings.get("max_seq_len") if isinstance(settings, dict) else getattr(settings, "max_seq_len", None)
    )
    if not found:
        raise ValueError(
            "The module is stateful, but its model_config has no 'max_seq_len'. "
            "Set it with config.rl_module(model_config={'max_seq_len': ...})"
        )
    return int(found)


def _initial_state(module: Any) -> Any:
    return convert_to_numpy(module.get_initial_state(), reduce_type=False)


def _states_before_chunks(episode: Any, module: Any, max_seq_len: int) -> Any:
    """Tree of arrays [chunks, ...]."""
    outputs = episode.extra_model_outputs.get(Columns.STATE_OUT)
    if outputs is None or not outputs.lookback:
        before = _initial_state(module)
    else:
        before = episode.get_extra_model_outputs(Columns.STATE_OUT, -1, neg_index_as_lookback=True)
    starts = np.arange(0, len(episode), max_seq_len)
    if outputs is None:  # the module gave none while sampling, so that each chunk starts anew
        return trees.tree_map(lambda leaf: np.repeat(np.asarray(leaf)[None], len(starts), axis=0), before)
    after = episode.get_extra_model_outputs(Columns.STATE_OUT, slice(0, len(episode)))
    if isinstance(after, list):
        after = trees.stack(after)
    return trees.tree_map(
        lambda first, leaf: np.concatenate([np.asarray(first)[None], leaf[:-1]])[starts], before, after
    )
