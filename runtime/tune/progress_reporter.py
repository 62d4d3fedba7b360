"""Reporters: what a program can have an experiment's progress shown by, in place of the built-in table."""

from __future__ import annotations

import html
import importlib
import numbers
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from runtime.train._core import retention
from runtime.tune.logger.flat import flat

DEFAULT_COLUMNS = {
    "mean_accuracy": "acc",
    "mean_loss": "loss",
    "training_iteration": "iter",
    "time_total_s": "total time (s)",
    "timesteps_total": "ts",
    "episode_reward_mean": "reward",
}
"""Metrics that are shown where trials have them, and their headings."""
_AUTOMATIC = frozenset(
    "timestamp checkpoint_dir_name should_checkpoint done trial_id date time_this_iter_s pid hostname node_ip "
    "time_since_restore iterations_since_restore config experiment_tag".split()
)
_ORDER = ("RUNNING", "STARTING", "PAUSED", "PENDING", "TERMINATED", "ERROR")


class ProgressReporter:
    """Shows an experiment's progress. Subclasses define `should_report` and `report`.

    They are called in the process that waits for the experiment, one call at a time: after trials start, report and
    end, and about once per second. What they raise ends the experiment. The reporter is pickled with the experiment.
    """

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Called before the other methods.

        Args:
            start_time: Seconds since the epoch.
            total_samples: How many trials there will be. None: unknown.
            metric, mode: What is optimized.
            kwargs: Reserved for later.
        """

    def should_report(self, trials: list[Any], done: bool = False) -> bool:
        """Whether `report` is called now.

        Args:
            trials: All trials so far.
            done: Whether the experiment has ended.
        """
        raise NotImplementedError(f"{type(self).__name__} must define should_report().")

    def report(self, trials: list[Any], done: bool, *sys_info: str) -> None:
        """Shows the progress.

        Args:
            trials: All trials so far.
            done: Whether the experiment has ended.
            sys_info: Lines about the scheduler.
        """
        raise NotImplementedError(f"{type(self).__name__} must define report().")


class TuneReporterBase(ProgressReporter):
    """Base of the reporters that show a table.

    Args:
        metric_columns: Metrics to show: a list, or a dict from names to headings. Default: well-known ones, and the
            first `infer_limit` numbers that trials report.
        parameter_columns: Parameters to show, likewise. Default: those that the search chose.
        total_samples: How many trials there will be. Default: as the experiment knows.
        max_progress_rows: Trials in the table; all states are represented.
        max_error_rows: Failed trials that are listed.
        max_column_length: Characters of a cell.
        max_report_frequency: Seconds between two reports.
        infer_limit: How many metrics are found by themselves.
        print_intermediate_tables: Whether tables are shown before the end. Default: yes.
        metric, mode: What is best. Default: those of the experiment.
        sort_by_metric: Whether trials that have ended are sorted by the metric, the best first.

    Raises:
        ValueError: The mode is neither "min" nor "max".
    """

    def __init__(
        self,
        *,
        metric_columns: list[str] | dict[str, str] | None = None,
        parameter_columns: list[str] | dict[str, str] | None = None,
        total_samples: int | None = None,
        max_progress_rows: int = 20,
        max_error_rows: int = 20,
        max_column_length: int = 20,
        max_report_frequency: float = 5,
        infer_limit: int = 3,
        print_intermediate_tables: bool | None = None,
        metric: str | None = None,
        mode: str | None = None,
        sort_by_metric: bool = False,
    ) -> None:
        if mode not in (None, "min", "max"):
            raise ValueError(f'mode must be "min" or "max", not {mode!r}.')
        self._infers = metric_columns is None
        self._metric_columns = _columns(DEFAULT_COLUMNS if metric_columns is None else metric_columns)
        self._parameter_columns = _columns(parameter_columns or ())
        self._total_samples = total_samples
        self._max_progress_rows = max_progress_rows
        self._max_error_rows = max_error_rows
        self._max_column_length = max_column_length
        self._max_report_frequency = max_report_frequency
        self._infer_limit = infer_limit
        self._shows_tables = print_intermediate_tables is not False
        self._metric, self._mode = metric, mode
        self._sort_by_metric = sort_by_metric
        self._start_time = time.time()
        self._last_report_s = float("-inf")

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.set_start_time(start_time)
        if total_samples is not None:
            self.set_total_samples(total_samples)
        self.set_search_properties(metric, mode)

    def set_search_properties(self, metric: str | None, mode: str | None) -> bool:
        """Sets what is optimized.

        Raises:
            ValueError: The reporter has another metric or mode of its own.
        """
        for name, own, given in (("metric", self._metric, metric), ("mode", self._mode, mode)):
            if own is not None and given is not None and own != given:
                raise ValueError(
                    f"The reporter has the {name} {own!r}, and the experiment {given!r}. Leave one of them out."
                )
        self._metric, self._mode = metric or self._metric, mode or self._mode
        return True

    def set_total_samples(self, total_samples: int | None) -> None:
        """Sets how many trials there will be."""
        self._total_samples = total_samples

    def set_start_time(self, timestamp: float | None = None) -> None:
        """Sets when the experiment began, in seconds since the epoch. Default: now."""
        self._start_time = time.time() if timestamp is None else timestamp

    def should_report(self, trials: list[Any], done: bool = False) -> bool:
        now_s = time.monotonic()
        if not done and now_s - self._last_report_s < self._max_report_frequency:
            return False
        self._last_report_s = now_s
        return True

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Shows one more metric.

        Args:
            metric: Its name.
            representation: Its heading.

        Raises:
            ValueError: It is shown already.
        """
        self._infers = False
        _add(self._metric_columns, metric, representation)

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Shows one more parameter. See `add_metric_column`."""
        _add(self._parameter_columns, parameter, representation)

    # ------------------------------------------------------------ what is shown

    def _summary(self, trials: Sequence[Any], sys_info: Sequence[str]) -> list[str]:
        """Lines above the table."""
        passed = timedelta(seconds=round(time.time() - self._start_time))
        counts = {state: sum(trial.status == state for trial in trials) for state in _ORDER}
        known = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        total = f"/{self._total_samples}" if self._total_samples else ""
        lines = [f"Current time: {datetime.now():%Y-%m-%d %H:%M:%S} (running for {passed})", *sys_info]
        best = self._best(trials)
        if best is not None:
            value = self._shown(retention.lookup(best.last_result, str(self._metric)))
            lines.append(
                f"Current best trial: {best} with {self._metric}={value} and parameters={best.evaluated_params}"
            )
        lines.append(f"Number of trials: {len(trials)}{total}" + (f" ({known})" if known else ""))
        return lines

    def _table(self, trials: Sequence[Any]) -> tuple[list[list[str]], int]:
        """The rows of the table, headings first, and how many trials it leaves out."""
        shown = self._chosen(trials)
        parameters = self._parameter_columns or {
            name: name for trial in shown for name in trial.evaluated_params
        }
        metrics = {
            name: heading
            for name, heading in {**self._metric_columns, **self._inferred(shown)}.items()
            if not self._infers
            or any(retention.lookup(trial.last_result, name) is not None for trial in shown)
        }
        rows = [["Trial name", "status", *parameters.values(), *metrics.values()]]
        for trial in shown:
            config = flat(trial.config)
            cells = [config.get(name, trial.evaluated_params.get(name)) for name in parameters]
            cells += [retention.lookup(trial.last_result, name) for name in metrics]
            rows.append([str(trial), trial.status, *map(self._shown, cells)])
        rows[0] = [cell if len(cell) <= self._max_column_length else self._cut(cell) for cell in rows[0]]
        return rows, len(trials) - len(shown)

    def _failures(self, trials: Sequence[Any]) -> list[list[str]]:
        """The rows of the table of failed trials, headings first; empty: there are none."""
        failed = [trial for trial in trials if trial.num_failures]
        rows = [
            [str(trial), str(trial.num_failures), f"{trial.local_path}/error.txt"]
            for trial in failed[: self._max_error_rows]
        ]
        return [["Trial name", "failures", "error file"], *rows] if rows else []

    def _chosen(self, trials: Sequence[Any]) -> list[Any]:
        """The trials of the table: each state in turn gives one, until it is full."""
        by_state = {state: [trial for trial in trials if trial.status == state] for state in _ORDER}
        if self._sort_by_metric and self._metric is not None:
            by_state["TERMINATED"].sort(key=self._rank)
        room, quota = self._max_progress_rows, dict.fromkeys(_ORDER, 0)
        while room > 0 and any(quota[state] < len(by_state[state]) for state in _ORDER):
            for state in _ORDER:
                if room > 0 and quota[state] < len(by_state[state]):
                    quota[state] += 1
                    room -= 1
        return [trial for state in _ORDER for trial in by_state[state][: quota[state]]]

    def _rank(self, trial: Any) -> float:
        """Smaller is better."""
        value = retention.lookup(trial.last_result, str(self._metric))
        if not isinstance(value, numbers.Real) or float(value) != float(value):
            return float("inf")
        return -float(value) if self._mode == "max" else float(value)

    def _best(self, trials: Sequence[Any]) -> Any:
        if self._metric is None or self._mode is None:
            return None
        best = min(trials, key=self._rank, default=None)
        return best if best is not None and self._rank(best) < float("inf") else None

    def _inferred(self, trials: Sequence[Any]) -> dict[str, str]:
        if not self._infers:
            return {}
        found: dict[str, str] = {}
        for trial in trials:
            for name, value in trial.last_result.items():
                is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
                if is_number and name not in _AUTOMATIC and name not in DEFAULT_COLUMNS:
                    found.setdefault(name, name)
        return dict(list(found.items())[: self._infer_limit])

    def _shown(self, value: Any) -> str:
        if value is None:
            return ""
        text = (
            f"{value:.6g}" if isinstance(value, numbers.Real) and not isinstance(value, int) else str(value)
        )
        return self._cut(text)

    def _cut(self, text: str) -> str:
        most = self._max_column_length
        return text if len(text) <= most else text[: max(1, most - 3)] + "..."

    def _text(self, trials: Sequence[Any], done: bool, sys_info: Sequence[str]) -> str:
        """The progress as plain text."""
        lines = ["== Status ==", *self._summary(trials, sys_info)]
        if self._shows_tables or done:
            rows, more = self._table(trials)
            lines += _aligned(rows)
            if more:
                lines.append(f"... {more} more trials not shown")
            failures = self._failures(trials)
            if failures:
                lines += ["Failed trials:", *_aligned(failures)]
        return "\n".join(lines) + "\n\n"


class CLIReporter(TuneReporterBase):
    """Prints the progress to stdout. See `TuneReporterBase` for the arguments."""

    def report(self, trials: list[Any], done: bool, *sys_info: str) -> None:
        sys.stdout.write(self._text(trials, done, sys_info))
        sys.stdout.flush()


class JupyterNotebookReporter(TuneReporterBase):
    """Shows the progress as a table in the notebook's cell. Outside of IPython it prints as `CLIReporter` does.

    Args:
        overwrite: Whether the table is replaced; otherwise one follows the other.
        kwargs: See `TuneReporterBase`.
    """

    def __init__(self, *, overwrite: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._overwrite = overwrite
        self._display: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_display": None}  # the cell belongs to this process

    def report(self, trials: list[Any], done: bool, *sys_info: str) -> None:
        if not _is_notebook():
            sys.stdout.write(self._text(trials, done, sys_info))
            sys.stdout.flush()
            return
        ipython = importlib.import_module("IPython.display")
        shown = ipython.HTML(self._html(trials, done, sys_info))
        if self._overwrite and self._display is not None:
            self._display.update(shown)
        else:
            self._display = ipython.display(shown, display_id=True)

    def _html(self, trials: Sequence[Any], done: bool, sys_info: Sequence[str]) -> str:
        """The progress as HTML."""
        parts = [f"<div>{html.escape(line)}</div>" for line in self._summary(trials, sys_info)]
        if self._shows_tables or done:
            rows, more = self._table(trials)
            parts.append(_html_table(rows))
            if more:
                parts.append(f"<div>... {more} more trials not shown</div>")
            failures = self._failures(trials)
            if failures:
                parts.append(_html_table(failures))
        return "<div>" + "".join(parts) + "</div>"


def _is_notebook() -> bool:
    """Whether IPython runs this program. It is imported then."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def _columns(given: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    return dict(given) if isinstance(given, Mapping) else {name: name for name in given}


def _add(columns: dict[str, str], name: str, heading: str | None) -> None:
    if name in columns:
        raise ValueError(f"The column {name!r} is shown already.")
    columns[name] = heading or name


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return lines


def _html_table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = "".join(f"<tr>{_html_cells(row, 'td')}</tr>" for row in body)
    return f"<table><thead><tr>{_html_cells(head, 'th')}</tr></thead><tbody>{lines}</tbody></table>"


def _html_cells(row: Sequence[str], tag: str) -> str:
    return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
