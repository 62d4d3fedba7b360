"""Results as a table."""

from __future__ import annotations

import csv
import os
from typing import Any

from runtime.tune._api.callback import LoggerCallback
from runtime.tune.logger.flat import flat


class CSVLoggerCallback(LoggerCallback):
    """Writes `progress.csv`: a row for each result, with the columns of the first one. The configuration is in
    `params.json`."""

    def __init__(self) -> None:
        self._columns: dict[Any, list[str]] = {}

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        row = flat({name: value for name, value in result.items() if name != "config"})
        path = os.path.join(trial.local_path, "progress.csv")
        columns = self._columns.get(trial)
        with open(path, "a", encoding="utf-8", newline="") as file:
            if columns is None:
                columns = self._columns[trial] = _columns_of(path) or list(row)
                if file.tell() == 0:
                    csv.writer(file).writerow(columns)
            csv.writer(file).writerow([row.get(name, "") for name in columns])

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        self._columns.pop(trial, None)


def _columns_of(path: str) -> list[str]:
    """The columns of a table that a former run of the trial began; empty: there is none."""
    with open(path, encoding="utf-8", newline="") as file:
        return next(csv.reader(file), [])
