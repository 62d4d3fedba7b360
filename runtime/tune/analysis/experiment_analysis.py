"""The trials of an experiment, to be compared after it has ended."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from runtime.train._core import retention
from runtime.tune._api.result_grid import SCOPES, ResultGrid
from runtime.tune._core.trial import Trial
from runtime.tune.logger.flat import flat

if TYPE_CHECKING:
    import pandas

    from runtime.train._api.checkpoint import Checkpoint

log = logging.getLogger(__name__)


class ExperimentAnalysis:
    """Compares the trials of an experiment.

    Args:
        experiment_checkpoint_path: The experiment's folder: a local path, a URI, or a path on `storage_filesystem`.
        storage_filesystem: A file system of fsspec or `pyarrow.fs`.
        trials: The trials. Default: those that the folder records.
        default_metric, default_mode: Used where a method is called without a metric or mode.

    Raises:
        ValueError: The mode is neither "min" nor "max".
        TuneError: The folder has no experiment, or it cannot be read.
    """

    def __init__(
        self,
        experiment_checkpoint_path: str | os.PathLike[str],
        *,
        storage_filesystem: Any = None,
        trials: list[Trial] | None = None,
        default_metric: str | None = None,
        default_mode: str | None = None,
    ) -> None:
        from runtime.tune._api.config import RunConfig
        from runtime.tune._api.tuner import _split
        from runtime.tune._run import driver

        if default_mode not in (None, "min", "max"):
            raise ValueError(f'default_mode must be "min", "max" or None, not {default_mode!r}.')
        self.default_metric = default_metric
        self.default_mode = default_mode
        parent, name = _split(experiment_checkpoint_path, storage_filesystem)
        run = RunConfig(name=name, storage_path=parent, storage_filesystem=storage_filesystem)
        self._storage = driver.storage_of(run)
        if trials is None:
            definition = driver.load(self._storage)
            definition.run.name, definition.run.storage_path = name, parent
            definition.run.storage_filesystem = storage_filesystem
            trials = driver.past_trials(definition)
        self.trials = trials
        filesystem = None if self._storage.is_local else self._storage.storage_filesystem
        self._grid = ResultGrid(trials, self._storage.folder, default_metric, default_mode, filesystem)
        self._frames: dict[str, pandas.DataFrame] | None = None

    # ------------------------------------------------------------ the best trial by the default metric

    @property
    def best_trial(self) -> Trial:
        """The trial with the best last result.

        Raises:
            ValueError: There is no default metric or mode, or no trial has the metric.
        """
        best = self.get_best_trial(self.default_metric, self.default_mode)
        if best is None:
            raise ValueError(f"No trial has a finite value of the metric {self.default_metric!r}.")
        return best

    @property
    def best_config(self) -> dict[str, Any]:
        """The configuration of `best_trial`."""
        return self.best_trial.config

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The best checkpoint of `best_trial`. None: it has none."""
        return self.get_best_checkpoint(self.best_trial, self.default_metric, self.default_mode)

    @property
    def best_result(self) -> dict[str, Any]:
        """The last result of `best_trial`."""
        return self.best_trial.last_result

    @property
    def best_dataframe(self) -> pandas.DataFrame:
        """All results of `best_trial`. Needs pandas."""
        return self.trial_dataframes[self.best_trial.trial_id]

    @property
    def best_result_df(self) -> pandas.DataFrame:
        """The last result of `best_trial` as a row, indexed by trial id. Needs pandas."""
        return _pandas("best_result_df").DataFrame.from_records([_row(self.best_trial)], index="trial_id")

    # ------------------------------------------------------------ all trials

    @property
    def experiment_path(self) -> str:
        """The path of the experiment's folder, on its file system."""
        return self._storage.folder

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The last result of each trial, by trial id."""
        return {trial.trial_id: trial.last_result for trial in self.trials}

    @property
    def results_df(self) -> pandas.DataFrame:
        """A row for the last result of each trial, indexed by trial id. Needs pandas."""
        rows = [_row(trial) for trial in self.trials]
        return _pandas("results_df").DataFrame.from_records(rows, index="trial_id")

    @property
    def trial_dataframes(self) -> dict[str, pandas.DataFrame]:
        """All results of each trial, by trial id; read from the experiment's folder once. Needs pandas."""
        if self._frames is None:
            make = _pandas("trial_dataframes").DataFrame
            self._frames = {trial.trial_id: make(rows) for trial, rows in self._histories()}
        return self._frames

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """The configuration of each trial, by trial id.

        Args:
            prefix: Whether they are flat, with names such as "config/outer/inner".
        """
        return {
            trial.trial_id: flat(trial.config, "config/") if prefix else trial.config for trial in self.trials
        }

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> pandas.DataFrame:
        """A row for each trial that has results, with its configuration. Needs pandas.

        Args:
            metric, mode: The row is the trial's result with the best value of the metric. Default: the last result.

        Raises:
            ValueError: A mode without a metric, or an unknown mode.
        """
        if mode is not None and metric is None:
            raise ValueError("dataframe(mode=...) needs a metric, too.")
        if mode not in (None, "min", "max"):
            raise ValueError(f'mode must be "min", "max" or None, not {mode!r}.')
        rows = []
        for trial, results in self._histories():
            if not results:
                continue
            chosen = results[-1]
            if metric is not None and mode is not None:
                having = [row for row in results if _is_number(row.get(metric))]
                pick = max if mode == "max" else min
                chosen = pick(having, key=lambda row: float(row[metric])) if having else chosen
            rows.append({**chosen, **flat(trial.config, "config/"), "logdir": trial.trial_id})
        return _pandas("dataframe").DataFrame(rows)

    # ------------------------------------------------------------ the best by any metric

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Trial | None:
        """The trial with the best value of a metric. None: no trial has one. An only trial is the best.

        Args:
            metric, mode: Default: `default_metric`, `default_mode`.
            scope: Which value of a trial counts: the "last", the best of "all", the average ("avg"), or the average of
                the last 5 or 10 ("last-5-avg", "last-10-avg").
            filter_nan_and_inf: Whether NaN and infinite values are ignored.

        Raises:
            ValueError: There is no metric or mode, or the scope is unknown.
        """
        if len(self.trials) == 1:
            return self.trials[0]
        metric, mode = self._metric(metric), self._mode(mode)
        if scope not in SCOPES:
            raise ValueError(f"scope must be one of {', '.join(SCOPES)}, not {scope!r}.")
        try:
            best = self._grid.get_best_result(metric, mode, scope, filter_nan_and_inf)
        except RuntimeError as error:
            log.warning("There is no best trial. %s", error)
            return None
        return next(trial for trial, result in zip(self.trials, self._grid, strict=True) if result is best)

    def get_best_config(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> dict[str, Any] | None:
        """The configuration of `get_best_trial`."""
        best = self.get_best_trial(metric, mode, scope)
        return best.config if best is not None else None

    def get_best_checkpoint(
        self, trial: Trial, metric: str | None = None, mode: str | None = None
    ) -> Checkpoint | None:
        """The checkpoint of a trial that was reported with the best value of a metric. None: there is none.

        Args:
            trial: One of `trials`.
            metric: Default: `default_metric`, or else "training_iteration".
            mode: Default: `default_mode`.

        Raises:
            ValueError: There is no mode.
        """
        metric, mode = metric or self.default_metric or "training_iteration", self._mode(mode)
        sign = 1 if mode == "max" else -1
        valued = []
        for saved in trial.saved:
            own = {"training_iteration": saved.iteration, "time_total_s": saved.time_total_s}
            value = retention.lookup({**own, **saved.metrics}, metric)
            if _is_number(value):
                valued.append((sign * float(value), saved.checkpoint))
        if not valued:
            log.warning("The trial %s has no checkpoint with the metric %s", trial, metric)
            return None
        found: Checkpoint = max(valued, key=lambda pair: pair[0])[1]
        return found

    def get_last_checkpoint(
        self, trial: Trial | None = None, metric: str = "training_iteration", mode: str = "max"
    ) -> Checkpoint | None:
        """The latest checkpoint of a trial. None: there is none.

        Args:
            trial: Default: the best by `metric` and `mode`.
        """
        trial = trial or self.get_best_trial(metric, mode)
        found: Checkpoint | None = trial.checkpoint if trial is not None else None
        return found

    # ------------------------------------------------------------ parts

    def _metric(self, metric: str | None) -> str:
        chosen = metric or self.default_metric
        if not chosen:
            raise ValueError("No metric: pass one, or give the ExperimentAnalysis a default_metric.")
        return chosen

    def _mode(self, mode: str | None) -> str:
        chosen = mode or self.default_mode
        if chosen not in ("min", "max"):
            raise ValueError(
                f'mode must be "min" or "max", not {chosen!r}: pass one, or give the ExperimentAnalysis a default_mode.'
            )
        return chosen

    def _histories(self) -> Iterator[tuple[Trial, list[dict[str, Any]]]]:
        """The trials with their results, flat, from their folders."""
        for trial, result in zip(self.trials, self._grid, strict=True):
            yield trial, [flat(row) for row in result.history]


def _row(trial: Trial) -> dict[str, Any]:
    return {"trial_id": trial.trial_id, **flat(trial.last_result)}


def _is_number(value: Any) -> bool:
    try:
        return not math.isnan(float(value))
    except (TypeError, ValueError):
        return False


def _pandas(what: str) -> Any:
    try:
        import pandas
    except ImportError:
        raise ImportError(f"{what} needs pandas, which is not installed here: pip install pandas") from None
    return pandas
