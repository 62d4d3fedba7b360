"""An environment runner that records what it samples."""

from __future__ import annotations

from typing import Any

from runtime.rllib._core.rollout import Rollout
from runtime.rllib._core.types import DEFAULT_MODULE_ID, Config
from runtime.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from runtime.rllib.env.single_agent_episode import to_rollout

from .recorder import Recorder

__all__ = ["OfflineSingleAgentEnvRunner"]


class OfflineSingleAgentEnvRunner(SingleAgentEnvRunner):
    """Samples as `SingleAgentEnvRunner` does and writes all steps below `config.output`; see `Recorder`.

    Raises:
        OSError: a file cannot be written.
    """

    def __init__(self, *, config: Config, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self._recorder = Recorder(config, self._get_subdir_path(), self.worker_index)

    def _get_subdir_path(self) -> str:
        """The folder of this environment below `config.output`."""
        env = self.config.env
        name = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
        return name.lower().replace("/", "-").replace(":", "-")

    def _steps(self, *args: Any, **kwargs: Any) -> tuple[Rollout | None, list[Any] | None]:
        rollout, episodes = super()._steps(*args, **kwargs)
        recorded = to_rollout(episodes) if rollout is None and episodes else rollout
        if recorded is not None:
            self._recorder.add({DEFAULT_MODULE_ID: recorded})
        self.metrics.log_value("recording_buffer_size", self._recorder.buffered_rows, window=1)
        return rollout, episodes

    def stop(self) -> None:
        """Closes the environments; with `output_write_remaining_data`, writes what is buffered."""
        self._recorder.close()
        super().stop()
