"""What a terminal shows of an experiment. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from runtime.train._core import retention

from .study import Study

ROWS = 20
"""Trials that are shown: an experiment of thousands stays readable."""
_COLUMNS = ("trial", "status", "iter", "total s")


class Row(msgspec.Struct, frozen=True):
    """A trial that has not ended."""

    name: str
    status: str
    iteration: int
    total_s: float
    parameters: Mapping[str, Any]
    result: Mapping[str, Any]


class View(msgspec.Struct, frozen=True):
    """An experiment at some time.

    Attributes:
        counts: of the trials, by status.
        rows: of trials that have not ended, at most `ROWS`.
        best: the name of the trial with the best result so far; "": none.
        best_value: its metric.
    """

    counts: Mapping[str, int]
    rows: Sequence[Row]
    best: str = ""
    best_value: Any = None


def view_of(study: Study) -> View:
    """What is shown of a study now."""
    rows = [
        Row(
            str(trial),
            trial.status,
            trial.last_result.get("training_iteration", 0),
            trial.last_result.get("time_total_s", 0.0),
            trial.evaluated_params,
            trial.last_result,
        )
        for trial in islice(study.live_trials(), ROWS)
    ]
    counts = {state.value: count for state, count in study.counts.items() if count}
    best = study.best
    return View(counts, rows, str(best[1]) if best else "", best[0] if best else None)


def line(view: View, metric: Any, seconds: float) -> str:
    """An experiment in a line."""
    counts = ", ".join(f"{count} {status}" for status, count in view.counts.items()) or "no trials yet"
    best = f" Best {metric}: {_shown(view.best_value)} ({view.best})." if view.best else ""
    return f"After {seconds:.0f} s: {counts}.{best}"


def lines(view: View, metric: Any, seconds: float) -> list[str]:
    """An experiment as a line and a table of the trials that have not ended."""
    shown = [line(view, metric, seconds)]
    if not view.rows:
        return shown
    names = list(dict.fromkeys(name for row in view.rows for name in row.parameters))[:3]
    header = [*_COLUMNS, *names, *([metric] if isinstance(metric, str) else [])]
    table = [header]
    for row in view.rows:
        values = [_shown(row.parameters.get(name)) for name in names]
        if isinstance(metric, str):
            values.append(_shown(retention.lookup(row.result, metric)))
        table.append([row.name, row.status, str(row.iteration), f"{row.total_s:.1f}", *values])
    widths = [max(len(cells[column]) for cells in table) for column in range(len(header))]
    shown += [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) for cells in table
    ]
    more = sum(view.counts.get(status, 0) for status in ("PENDING", "STARTING", "RUNNING", "PAUSED")) - len(
        view.rows
    )
    if more > 0:
        shown.append(f"and {more} more")
    return shown


def first_line(error: BaseException | None) -> str:
    """An error in a line."""
    text = str(error).strip().splitlines()
    return text[-1] if text else type(error).__name__


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.5g}"
    return str(value)[:20]
