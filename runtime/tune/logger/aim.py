"""Results for Aim."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Sequence
from typing import Any

from runtime.tune._api.callback import LoggerCallback
from runtime.tune.logger.flat import flat
from runtime.tune.logger.library import check_installed

_PREFIX = "ray/tune/"
"""Of the names of metrics, as with Ray."""
_NEVER = frozenset(
    {"config", "pid", "timestamp", "time_total_s", "training_iteration", "context", "epoch", "done"}
)
_PARAMETERS = (str, bool, int, float, list, type(None))


class AimLoggerCallback(LoggerCallback):
    """Logs each trial as a run of Aim: the parameters that were searched, and the numbers of each result.

    The runs are written by the process that waits for the experiment. Of a result, "context" is the context of all its
    metrics, and "epoch" their epoch.

    Args:
        repo: Aim's repository, or its folder. Default: in the experiment's folder.
        experiment_name: Aim's experiment. Default: the name of the experiment's folder.
        metrics: Those to log. Default: all.
        **aim_run_kwargs: For Aim's `Run`.

    Raises:
        ImportError: Aim is not installed.
        ValueError: `metrics` is empty.
    """

    def __init__(
        self,
        repo: Any = None,
        experiment_name: str | None = None,
        metrics: Sequence[str] | None = None,
        **aim_run_kwargs: Any,
    ) -> None:
        check_installed("aim", type(self).__name__, "aim")
        if metrics is not None and not metrics:
            raise ValueError("metrics must name at least one metric, or be None for all of them.")
        self._repo = repo
        self._experiment_name = experiment_name
        self._metrics = metrics
        self._options = aim_run_kwargs
        self._runs: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runs": {}}

    def log_trial_start(self, trial: Any) -> None:
        from aim import Run

        if trial.trial_id in self._runs:
            return
        folder = os.path.dirname(trial.local_path)
        run = Run(
            repo=self._repo or folder,
            experiment=self._experiment_name or os.path.basename(folder),
            **self._options,
        )
        run["trial_id"] = trial.trial_id
        run["trial_log_dir"] = trial.path
        parameters = flat(trial.evaluated_params)
        run["hparams"] = {
            name: value if isinstance(value, _PARAMETERS) else str(value)
            for name, value in parameters.items()
        }
        self._runs[trial.trial_id] = run

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        run = self._runs[trial.trial_id]
        step = result.get("timesteps_total") or result["training_iteration"]
        epoch, context = result.get("epoch"), result.get("context")
        for name, value in flat({key: value for key, value in result.items() if key not in _NEVER}).items():
            is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if is_number and math.isfinite(value) and (self._metrics is None or name in self._metrics):
                run.track(float(value), name=f"{_PREFIX}{name}", step=step, epoch=epoch, context=context)

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        run = self._runs.pop(trial.trial_id, None)
        if run is not None:
            run.close()

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        for run in self._runs.values():  # of trials that an interruption has left
            run.close()
        self._runs.clear()
