"""Results for Weights & Biases."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

from runtime.tune._api.callback import LoggerCallback
from runtime.tune.logger.flat import flat
from runtime.tune.logger.library import check_installed

_DESCRIBING = frozenset({"trial_id", "experiment_tag", "node_ip", "experiment_id", "hostname", "pid", "date"})
"""Of results; logged with the configuration, once."""
_NEVER = frozenset({"done", "should_checkpoint", "config"})


class WandbLoggerCallback(LoggerCallback):
    """Logs each trial as a run of Weights & Biases: the configuration, and each result.

    The runs are written by the process that waits for the experiment, into the trials' folders. Without network
    use `mode="offline"`, or WANDB_MODE=offline.

    Args:
        project: Default: as wandb is configured, by WANDB_PROJECT for example.
        group: Default: the name of the trainable.
        api_key_file: A file with the key.
        api_key: The key. Default: as wandb is configured.
        excludes: Metrics that are not logged.
        log_config: Whether results with a "config" have it logged with each.
        upload_checkpoints: Whether each checkpoint is logged as an artifact.
        init_options: For `wandb.init`, such as `mode` or `tags`.

    Raises:
        ImportError: wandb is not installed.
        ValueError: Both a key and a file with one are given.
    """

    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        api_key_file: str | None = None,
        api_key: str | None = None,
        excludes: Sequence[str] | None = None,
        log_config: bool = False,
        upload_checkpoints: bool = False,
        **init_options: Any,
    ) -> None:
        check_installed("wandb", type(self).__name__, "wandb")
        self.project = project
        if api_key and api_key_file:
            raise ValueError("api_key and api_key_file exclude each other.")
        self.group = group
        self.api_key_file = api_key_file
        self.api_key = api_key
        self._left_out = _NEVER.union(excludes or ()) - ({"config"} if log_config else set())
        self._uploads_checkpoints = upload_checkpoints
        self._options = init_options
        self._runs: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runs": {}, "api_key": None}  # no secret goes into the experiment's folder

    def setup(self, *args: Any, **info: Any) -> None:
        if self.api_key_file is not None:
            self.api_key = pathlib.Path(self.api_key_file).expanduser().read_text(encoding="utf-8").strip()

    def log_trial_start(self, trial: Any) -> None:
        if trial.trial_id in self._runs:
            return
        import wandb

        options: dict[str, Any] = {
            "id": trial.trial_id,
            "name": str(trial),
            "resume": "allow",
            "reinit": "create_new",  # trials run side by side
            "project": self.project,
            "group": self.group or trial.trainable_name,
            "dir": trial.local_path,
            "config": {key: value for key, value in trial.config.items() if key not in self._left_out},
            **self._options,
        }
        if self.api_key:
            options["settings"] = wandb.Settings(api_key=self.api_key)
        self._runs[trial.trial_id] = wandb.init(**options)

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        run = self._runs[trial.trial_id]
        values = {
            name: value
            for name, value in flat(result).items()
            if name.partition("/")[0] not in self._left_out
        }
        describing = {name: values.pop(name) for name in _DESCRIBING & values.keys()}
        if result.get("training_iteration") == 1:
            run.config.update(describing, allow_val_change=True)
        run.log({name: value for name, value in values.items() if value is not None})

    def log_trial_save(self, trial: Any) -> None:
        run = self._runs.get(trial.trial_id)
        if not self._uploads_checkpoints or run is None or trial.checkpoint is None:
            return
        import wandb

        artifact = wandb.Artifact(f"checkpoint_{trial}", type="model")
        with trial.checkpoint.as_directory() as folder:
            artifact.add_dir(folder)
        run.log_artifact(artifact)

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        run = self._runs.pop(trial.trial_id, None)
        if run is not None:
            run.finish(exit_code=int(failed))

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        for run in self._runs.values():  # of trials that an interruption has left
            run.finish(exit_code=1)
        self._runs.clear()
