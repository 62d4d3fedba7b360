"""Results for MLflow."""

from __future__ import annotations

import importlib
import math
import numbers
from collections.abc import Mapping
from typing import Any

from runtime.tune._api.callback import LoggerCallback
from runtime.tune.logger.flat import flat
from runtime.tune.logger.library import check_installed

_MOST_CHARACTERS = 6000
"""Of a parameter's value, by MLflow."""


class MLflowLoggerCallback(LoggerCallback):
    """Logs each trial as a run of MLflow: the parameters, the numbers of each result, and how it ended.

    The runs are written by the process that waits for the experiment. Trials have no active run of their own.

    Args:
        tracking_uri: Where MLflow keeps them. Default: as MLflow is configured.
        registry_uri: Where MLflow keeps models.
        experiment_name: MLflow's experiment, made if there is none. Default: MLFLOW_EXPERIMENT_NAME,
            MLFLOW_EXPERIMENT_ID, or else MLflow's default.
        tags: Of each run.
        tracking_token: Sets MLflow's MLFLOW_TRACKING_TOKEN in this process.
        save_artifact: Whether the files of the trial's folder are logged when it ends.
        log_params_on_trial_end: Whether parameters are logged at the end of a trial, not at its beginning.

    Raises:
        ImportError: MLflow is not installed.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        tags: Mapping[str, Any] | None = None,
        tracking_token: str | None = None,
        save_artifact: bool = False,
        log_params_on_trial_end: bool = False,
    ) -> None:
        check_installed("mlflow", type(self).__name__, "mlflow")
        self.tracking_uri = tracking_uri
        self.registry_uri = registry_uri
        self.experiment_name = experiment_name
        self.tags = dict(tags or {})
        self.tracking_token = tracking_token
        self.should_save_artifact = save_artifact
        self.log_params_on_trial_end = log_params_on_trial_end
        self._client: Any = None
        self._experiment_id = "0"
        self._runs: dict[str, str] = {}  # MLflow's run ids by trial id

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "tracking_token": None}  # no secret goes into the folder

    def setup(self, *args: Any, **info: Any) -> None:
        from mlflow.tracking import MlflowClient

        of_mlflow: Any = importlib.import_module("mlflow.environment_variables")
        if self.tracking_token is not None:
            of_mlflow.MLFLOW_TRACKING_TOKEN.set(self.tracking_token)
        self._client = MlflowClient(self.tracking_uri, self.registry_uri)
        name = self.experiment_name or of_mlflow.MLFLOW_EXPERIMENT_NAME.get()
        if name is None:
            self._experiment_id = of_mlflow.MLFLOW_EXPERIMENT_ID.get() or "0"
            return
        found = self._client.get_experiment_by_name(name)
        self._experiment_id = (
            found.experiment_id if found is not None else self._client.create_experiment(name)
        )

    def log_trial_start(self, trial: Any) -> None:
        if trial.trial_id in self._runs:  # it goes on
            self._client.update_run(self._runs[trial.trial_id], status="RUNNING")
            return
        tags = {**self.tags, "trial_name": str(trial), "trial_id": trial.trial_id}
        run = self._client.create_run(self._experiment_id, tags=tags, run_name=str(trial))
        self._runs[trial.trial_id] = run.info.run_id
        if not self.log_params_on_trial_end:
            self._log_parameters(trial)

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        from mlflow.entities import Metric

        step = int(result.get("timesteps_total") or result["training_iteration"])
        now_ms = int(result.get("timestamp", 0)) * 1000
        metrics = [
            Metric(name, float(value), now_ms, step)
            for name, value in flat({key: value for key, value in result.items() if key != "config"}).items()
            if isinstance(value, numbers.Real)
            and not isinstance(value, bool)
            and not math.isnan(float(value))
        ]
        self._client.log_batch(self._runs[trial.trial_id], metrics=metrics)

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        run = self._runs.get(trial.trial_id)
        if run is None:  # it was stopped before it ran
            return
        if self.log_params_on_trial_end:
            self._log_parameters(trial)
        if self.should_save_artifact:
            self._client.log_artifacts(run, trial.local_path)
        self._client.set_terminated(run, "FAILED" if failed else "FINISHED")

    def _log_parameters(self, trial: Any) -> None:
        from mlflow.entities import Param

        parameters = [
            Param(name, str(value)[:_MOST_CHARACTERS]) for name, value in flat(trial.config).items()
        ]
        self._client.log_batch(self._runs[trial.trial_id], params=parameters)
