"""Results for Comet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from runtime.tune._api.callback import LoggerCallback
from runtime.tune.logger.flat import flat
from runtime.tune.logger.library import check_installed

_NEVER = frozenset({"done", "should_checkpoint", "config"})
_SYSTEM = frozenset({"node_ip", "hostname", "pid", "date"})
_OTHER = frozenset({"trial_id", "experiment_id", "experiment_tag"})
_QUIET = ("auto_output_logging", "log_git_metadata", "log_git_patch", "log_env_cpu", "log_env_gpu")
"""What Comet would log of the process that waits for the experiment; an option of the user's turns it on."""


class CometLoggerCallback(LoggerCallback):
    """Logs each trial as an experiment of Comet: the configuration, and each result.

    The experiments are written by the process that waits for ours. The key is taken from COMET_API_KEY, or from
    `api_key`.

    Args:
        online: Whether they are sent; otherwise they are written to files (`offline_directory`).
        tags: Of each.
        save_checkpoints: Whether each checkpoint is logged as an artifact.
        **experiment_kwargs: For Comet's `Experiment` or `OfflineExperiment`, such as `project_name`.

    Raises:
        ImportError: comet_ml is not installed.
    """

    def __init__(
        self,
        online: bool = True,
        tags: Sequence[str] | None = None,
        save_checkpoints: bool = False,
        **experiment_kwargs: Any,
    ) -> None:
        check_installed("comet_ml", type(self).__name__, "comet_ml")
        self.online = online
        self.tags = list(tags or [])
        self.save_checkpoints = save_checkpoints
        self._options = {**dict.fromkeys(_QUIET, False), **experiment_kwargs}
        self._experiments: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        options = {name: value for name, value in self._options.items() if name != "api_key"}
        return {**self.__dict__, "_experiments": {}, "_options": options}  # no secret goes into the folder

    def log_trial_start(self, trial: Any) -> None:
        if trial.trial_id in self._experiments:
            return
        os.environ.setdefault("COMET_DISABLE_AUTO_LOGGING", "1")  # before its first import
        from comet_ml import Experiment, OfflineExperiment
        from comet_ml.config import set_global_experiment

        experiment = (Experiment if self.online else OfflineExperiment)(**self._options)
        set_global_experiment(None)  # trials run side by side
        self._experiments[trial.trial_id] = experiment
        experiment.set_name(str(trial))
        experiment.add_tags(self.tags)
        experiment.log_parameters(flat(trial.config))

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        experiment, step = self._experiments[trial.trial_id], result["training_iteration"]
        values = {key: value for key, value in result.items() if key not in _NEVER}
        for name in _SYSTEM & values.keys():
            experiment.log_system_info(name, values.pop(name))
        experiment.log_others({name: values.pop(name) for name in _OTHER & values.keys()})
        experiment.log_metrics(flat(values), step=step)

    def log_trial_save(self, trial: Any) -> None:
        experiment = self._experiments.get(trial.trial_id)
        if not self.save_checkpoints or experiment is None or trial.checkpoint is None:
            return
        import comet_ml

        artifact = comet_ml.Artifact(name=f"checkpoint_{trial}", artifact_type="model")
        with trial.checkpoint.as_directory() as folder:
            artifact.add(folder)
            experiment.log_artifact(artifact)

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        experiment = self._experiments.pop(trial.trial_id, None)
        if experiment is not None:
            experiment.end()

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        for experiment in self._experiments.values():  # of trials that an interruption has left
            experiment.end()
        self._experiments.clear()
