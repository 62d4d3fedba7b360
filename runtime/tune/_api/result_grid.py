"""The results of an experiment."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runtime.train._api import result as train_result
from runtime.train._core import retention
from runtime.tune._core.trial import Trial
from runtime.tune.logger.flat import flat

if TYPE_CHECKING:
    import pandas

SCOPES = ("last", "all", "avg", "last-5-avg", "last-10-avg")


@dataclass
class Result(train_result.Result):
    """The result of a trial. `metrics`: its last result. `path`: its folder."""

    error: BaseException | None  # type: ignore[assignment]  # of the trial's own function

    @property
    def history(self) -> list[dict[str, Any]]:
        """All results of the trial, from its folder; those in a remote storage are there when the trial has ended.

        Raises:
            StorageError: the folder cannot be read.
        """
        from runtime.train._run.storage import RunStorage

        parent, _, name = self.path.rpartition("/")
        data = RunStorage(parent, name, self._filesystem).read("result.json")
        return [json.loads(line) for line in data.splitlines()]

    @property
    def metrics_dataframe(self) -> pandas.DataFrame | None:
        """A row for each result of the trial. None: there are none. Needs pandas.

        Raises:
            ImportError: pandas is not installed.
        """
        rows = [flat(row) for row in self.history]
        return _pandas("metrics_dataframe").DataFrame(rows) if rows else None


class ResultGrid:
    """The results of an experiment's trials, in the order in which the trials were made.

    Args:
        trials: of the experiment.
        path: of its folder, on `filesystem`.
        metric, mode: what `get_best_result` looks at by default.
        filesystem: of the storage; None: a local path or a URI.
    """

    def __init__(
        self, trials: Sequence[Trial], path: str, metric: Any, mode: Any, filesystem: Any = None
    ) -> None:
        self._trials = list(trials)
        self._path = path
        self._metric, self._mode = metric, mode
        self._filesystem = filesystem
        self._results = [self._result_of(trial) for trial in self._trials]

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, index: int) -> Result:
        return self._results[index]

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    def __repr__(self) -> str:
        shown = ",\n".join("  " + repr(each).replace("\n", "\n  ") for each in self._results)
        return f"ResultGrid<[\n{shown}\n]>"

    @property
    def default_metric(self) -> Any:
        """The metric of the TuneConfig."""
        return self._metric

    @property
    def default_mode(self) -> Any:
        """The mode of the TuneConfig."""
        return self._mode

    @property
    def experiment_path(self) -> str:
        """The path of the experiment's folder, on `filesystem`."""
        return self._path

    @property
    def filesystem(self) -> Any:
        """The file system of `experiment_path`."""
        from runtime.train._run import files

        return files.public(self._path, self._filesystem)[0]

    @property
    def errors(self) -> list[BaseException]:
        """Why trials failed."""
        return [each.error for each in self._results if each.error is not None]

    @property
    def num_errors(self) -> int:
        """How many trials failed."""
        return sum(trial.status == "ERROR" for trial in self._trials)

    @property
    def num_terminated(self) -> int:
        """How many trials ended without an error."""
        return sum(trial.status == "TERMINATED" for trial in self._trials)

    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Result:
        """The result of the trial with the best value of a metric.

        Args:
            metric: its name. Default: that of the TuneConfig.
            mode: "min" or "max". Default: that of the TuneConfig.
            scope: which value of a trial counts: its "last", the best of "all", the "avg", or that of the last 5 or 10
                ("last-5-avg", "last-10-avg").
            filter_nan_and_inf: whether such values do not count.

        Raises:
            ValueError: metric or mode is not known, or the scope is another one.
            RuntimeError: no trial has the metric.
        """
        metric, mode = metric or self._metric, mode or self._mode
        if len(self._results) == 1 and metric is None:
            return self._results[0]
        if not isinstance(metric, str):
            raise ValueError(
                "No metric: give get_best_result(metric=..., mode=...) one, or set it in the TuneConfig."
            )
        if mode not in ("min", "max"):
            raise ValueError(f'mode must be "min" or "max", not {mode!r}.')
        if scope not in SCOPES:
            raise ValueError(f"scope must be one of {', '.join(SCOPES)}, not {scope!r}.")
        best, best_value = None, 0.0
        for result in self._results:
            value = self._value_of(result, metric, mode, scope, filter_nan_and_inf)
            if value is None:
                continue
            if best is None or (value > best_value if mode == "max" else value < best_value):
                best, best_value = result, value
        if best is None:
            known = sorted({name for each in self._results for name in flat(each.metrics or {})})
            raise RuntimeError(
                f"No trial has a result with the metric {metric!r}"
                + (", or it is NaN or infinite in all of them" if filter_nan_and_inf else "")
                + f". The metrics there are: {', '.join(known) or 'none'}."
            )
        return best

    def get_dataframe(
        self, filter_metric: str | None = None, filter_mode: str | None = None
    ) -> pandas.DataFrame:
        """A row for each trial, with the last result, or the best one of a metric. Needs pandas.

        Args:
            filter_metric: the result with the best value of it counts. Default: the last.
            filter_mode: "min" or "max".

        Raises:
            ImportError: pandas is not installed.
        """
        rows = []
        for trial, result in zip(self._trials, self._results, strict=True):
            chosen: dict[str, Any] = result.metrics or {}
            if filter_metric is not None:
                mode = filter_mode or self._mode or "max"
                having = [row for row in result.history if retention.lookup(row, filter_metric) is not None]
                pick = max if mode == "max" else min
                if having:
                    chosen = pick(having, key=lambda row: retention.lookup(row, filter_metric))
            row = flat({name: value for name, value in chosen.items() if name != "config"})
            row.update(flat(trial.config, "config/"))
            row["logdir"] = trial.custom_dirname
            rows.append(row)
        return _pandas("get_dataframe").DataFrame(rows)

    def _result_of(self, trial: Trial) -> Result:
        return Result(
            metrics=dict(trial.last_result),
            checkpoint=trial.checkpoint,
            error=trial.error if trial.status == "ERROR" else None,
            path=trial.path,
            best_checkpoints=[(saved.checkpoint, saved.metrics) for saved in trial.saved],
            config=trial.config,
            _filesystem=self._filesystem,
        )

    def _value_of(self, result: Result, metric: str, mode: str, scope: str, filters: bool) -> float | None:
        if scope == "last":
            found = retention.lookup(result.metrics or {}, metric)
            values = [found] if found is not None else []
        else:
            values = [retention.lookup(row, metric) for row in result.history]
            values = [value for value in values if value is not None]
        numbers = [float(value) for value in values]
        if scope.startswith("last-"):
            numbers = numbers[-int(scope.split("-")[1]) :]
        if filters:
            numbers = [number for number in numbers if math.isfinite(number)]
        if not numbers:
            return None
        if scope == "all":
            return max(numbers) if mode == "max" else min(numbers)
        return sum(numbers) / len(numbers)


def _pandas(what: str) -> Any:
    try:
        import pandas
    except ImportError:
        raise ImportError(f"{what} needs pandas, which is not installed here: pip install pandas") from None
    return pandas
