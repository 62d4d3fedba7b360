"""The replay buffer of multi-agent episodes: each module's agent steps are drawn independently."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runtime.rllib._core.types import ModuleID
from runtime.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer


class MultiAgentEpisodeReplayBuffer(EpisodeReplayBuffer):
    """Keeps the newest `capacity` agent steps of each module."""

    def __init__(
        self,
        capacity: int = 10000,
        *,
        batch_size_B: int = 16,
        batch_length_T: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(capacity, batch_size_B=batch_size_B, batch_length_T=batch_length_T, **kwargs)

    def sample(
        self,
        num_items: int | None = None,
        *,
        batch_size_B: int | None = None,
        batch_length_T: int | None = None,
        n_step: int | tuple[int, int] | None = 1,
        beta: float | None = None,
        gamma: float = 0.99,
        replay_mode: str = "independent",
        modules_to_sample: Iterable[ModuleID] | None = None,
        **kwargs: Any,
    ) -> dict[ModuleID, dict[str, Any]]:
        """A batch of columns for each module; see `EpisodeReplayBuffer.sample`.

        Args:
            replay_mode: "independent" draws each module's rows for themselves.
            modules_to_sample: module ids; default: all that have experience.

        Raises:
            NotImplementedError: another replay mode.
        """
        if replay_mode != "independent":
            raise NotImplementedError(
                f"`replay_mode` must be 'independent'; {replay_mode!r} is not supported"
            )
        count, length = self._sizes(num_items, batch_size_B, batch_length_T)
        return {
            module_id: self.draw(
                module_id,
                count,
                length=length,
                n_step=n_step or 1,
                gamma=gamma,
                beta=self.beta if beta is None else beta,
            )
            for module_id in (self.get_module_ids() if modules_to_sample is None else modules_to_sample)
        }

    def get_num_agent_timesteps(self) -> int:
        """Agent steps in the buffer."""
        return self.get_num_timesteps()

    def get_added_agent_timesteps(self) -> int:
        """Agent steps that were ever added."""
        return self.get_added_timesteps()
