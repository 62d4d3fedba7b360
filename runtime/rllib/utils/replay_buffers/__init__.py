"""Replay buffers under RLlib's names, over the rings of `runtime.rllib._core.replay`; imported on first use."""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {
    "EpisodeReplayBuffer": "episode_replay_buffer",
    "MultiAgentEpisodeReplayBuffer": "multi_agent_episode_buffer",
    "MultiAgentPrioritizedEpisodeReplayBuffer": "multi_agent_prioritized_episode_buffer",
    "PrioritizedEpisodeReplayBuffer": "prioritized_episode_buffer",
    "PrioritizedReplayBuffer": "prioritized_replay_buffer",
    "ReplayBuffer": "replay_buffer",
    "ReplayBufferInterface": "base",
    "ReservoirReplayBuffer": "reservoir_replay_buffer",
    "StorageUnit": "replay_buffer",
}

# Names of the old API stack -> what there is in their place.
OLD = {
    "FifoReplayBuffer": "EpisodeReplayBuffer",
    "MultiAgentMixInReplayBuffer": "MultiAgentEpisodeReplayBuffer",
    "MultiAgentPrioritizedReplayBuffer": "MultiAgentPrioritizedEpisodeReplayBuffer",
    "MultiAgentReplayBuffer": "MultiAgentEpisodeReplayBuffer",
    "ReplayMode": "the argument replay_mode of MultiAgentEpisodeReplayBuffer.sample",
    "SimpleReplayBuffer": "EpisodeReplayBuffer",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name in OLD:
        raise ImportError(f"{name} belongs to RLlib's old API stack, which is not here: use {OLD[name]}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
