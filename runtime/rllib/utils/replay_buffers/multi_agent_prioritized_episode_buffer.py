"""The replay buffer of multi-agent episodes with priorities for each module's agent steps."""

from __future__ import annotations

from typing import Any

from runtime.rllib.utils.replay_buffers.multi_agent_episode_buffer import MultiAgentEpisodeReplayBuffer
from runtime.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer


class MultiAgentPrioritizedEpisodeReplayBuffer(MultiAgentEpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer):
    """`MultiAgentEpisodeReplayBuffer` that draws in proportion to priorities; update them with the module's id."""

    def __init__(
        self,
        capacity: int = 10000,
        *,
        batch_size_B: int = 16,
        batch_length_T: int = 1,
        alpha: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            capacity, batch_size_B=batch_size_B, batch_length_T=batch_length_T, alpha=alpha, **kwargs
        )
