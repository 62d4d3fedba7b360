"""An environment runner that records what it samples."""

from __future__ import annotations

from typing import Any

from runtime.rllib._core.types import Config
from runtime.rllib.env.env_runner import Collected
from runtime.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode, to_rollout

from .recorder import Recorder

__all__ = ["OfflineSingleAgentEnvRunner"]


class OfflineSingleAgentEnvRunner(SingleAgentEnvRunner):
    """Samples as `SingleAgentEnvRunner` does and writes all steps below `config.output`; see `Recorder`."""

    def __init__(self, *, config: Config, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self._recorder = Recorder(config, self._get_subdir_path(), self.worker_index)
