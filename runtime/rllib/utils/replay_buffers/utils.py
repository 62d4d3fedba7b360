"""What algorithms do with replay buffers: make them, refresh priorities, draw a minimum of time steps."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from runtime.rllib._core.types import ModuleID
from runtime.rllib.utils import replay_buffers
from runtime.rllib.utils.metrics import TD_ERROR_KEY
from runtime.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer
from runtime.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer
from runtime.rllib.utils.replay_buffers.replay_buffer import ReplayBuffer


def make_replay_buffer(config: Mapping[str, Any], *, seed: int | None = None) -> Any:
    """The buffer that a `replay_buffer_config` describes.

    Args:
        config: "type", a class, its name in `runtime.rllib.utils.replay_buffers` or a dotted path, and its arguments.
        seed: of the draws, unless the configuration has one.

    Raises:
        ValueError: there is no such type.
    """
    arguments = dict(config)
    kind = arguments.pop("type", "EpisodeReplayBuffer")
    if not isinstance(kind, str):
        cls = kind
    elif "." in kind:
        module, _, name = kind.rpartition(".")
        cls = getattr(importlib.import_module(module), name)
    elif kind in replay_buffers.__all__:
        cls = getattr(replay_buffers, kind)
    elif kind in replay_buffers.OLD:
        raise ValueError(f"{kind} belongs to RLlib's old API stack: use {replay_buffers.OLD[kind]}")
    else:
        raise ValueError(f"There is no replay buffer {kind!r}; there are {', '.join(replay_buffers.__all__)}")
    if issubclass(cls, EpisodeReplayBuffer | ReplayBuffer):
        arguments.setdefault("seed", seed)
    return cls(**arguments)


def update_priorities_in_episode_replay_buffer(
    *, replay_buffer: Any, td_errors: Mapping[ModuleID, Any]
) -> None:
    """Set the priorities of the last sample to absolute temporal-difference errors, if the buffer has priorities.

    Args:
        replay_buffer: any buffer.
        td_errors: [B] for each module id that was sampled, or a dict that has these as "td_error".
    """
    if isinstance(replay_buffer, PrioritizedEpisodeReplayBuffer):
        for module_id, errors in td_errors.items():
            values = errors[TD_ERROR_KEY] if isinstance(errors, Mapping) else errors
            replay_buffer.update_priorities(values, module_id)


def sample_min_n_steps_from_buffer(
    replay_buffer: ReplayBuffer, min_steps: int, count_by_agent_steps: bool = False
) -> Any:
    """Draw items until they have at least this many time steps; for buffers of sequences, episodes or fragments.

    Raises:
        ValueError: the buffer is empty.
    """
    batches: list[Any] = []
    steps = 0
    while steps < min_steps:
        batches.append(replay_buffer.sample(1))
        steps += max(len(column) for name, column in batches[-1].items() if name != "seq_lens")
    columns = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    return columns if type(batches[0]) is dict else type(batches[0])(columns)
