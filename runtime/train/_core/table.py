"""What a terminal shows of a run. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

METRICS = 3
"""Metrics of a rank that are shown."""
HEADER = ("rank", "node", "pid", "state", "reports", "per s", "last metrics")


class RankView(msgspec.Struct, frozen=True):
    """A rank.

    Attributes:
        node: its id.
        pid: of its process; 0: not known yet.
        state: in words.
        reports: so far in this attempt.
    """

    rank: int
    node: str
    pid: int
    state: str
    reports: int


class RunView(msgspec.Struct, frozen=True):
    """A run, at some time.

    Attributes:
        state: of its controller.
        attempt: how often the training function was called, with this time.
        failures: so far.
        committed: reports of all ranks that are committed, of this attempt.
        starting_s, ending_s: how long it has waited for workers, and for its end.
        ranks: of the attempt.
        metrics: the last of each rank that are committed.
    """

    state: str
    attempt: int
    failures: int
    committed: int
    starting_s: float
    ending_s: float
    ranks: Sequence[RankView]
    metrics: Sequence[Mapping[str, Any]] = ()


class Rates:
    """Reports per second, from one view to the next."""

    def __init__(self) -> None:
        self._attempt = 0
        self._seen: list[int] = []
        self._seen_s = 0.0

    def of(self, view: RunView, now: float) -> list[float]:
        """By rank; 0 in the first view of an attempt."""
        counts = [each.reports for each in view.ranks]
        passed_s = now - self._seen_s
        is_comparable = view.attempt == self._attempt and len(counts) == len(self._seen) and passed_s > 0
        rates = [0.0] * len(counts)
        if is_comparable:
            rates = [max(0, new - old) / passed_s for new, old in zip(counts, self._seen, strict=True)]
        self._attempt, self._seen, self._seen_s = view.attempt, counts, now
        return rates


def lines(name: str, view: RunView, rates: Sequence[float], seconds: float) -> list[str]:
    """A line of the run, and a table of its ranks.

    Args:
        rates: by rank, see `Rates`.
        seconds: since the run began.
    """
    rows = [HEADER]
    for each, rate in zip(view.ranks, rates, strict=True):
        metrics = view.metrics[each.rank] if each.rank < len(view.metrics) else {}
        pid = str(each.pid) if each.pid else "?"
        rows.append(
            (str(each.rank), each.node[:8], pid, each.state, str(each.reports), number(rate), brief(metrics))
        )
    head = f"{name}: {_head(view)}, {seconds:.0f} s"
    if not view.ranks:
        return [head]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [head, *(f"  {row}".rstrip() for row in table)]


def line(name: str, view: RunView, rates: Sequence[float], seconds: float) -> str:
    """The run in one line, for a log."""
    head = f"{name}: {_head(view)}, {seconds:.0f} s"
    if not view.ranks:
        return head
    counts = [each.reports for each in view.ranks]
    spread = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    metrics = brief(view.metrics[0]) if view.metrics else ""
    return f"{head}; {len(counts)} ranks, {spread} reports, {number(sum(rates))} per s" + (
        f"; rank 0: {metrics}" if metrics else ""
    )


def brief(metrics: Mapping[str, Any]) -> str:
    """The first metrics that are numbers."""
    shown = [
        f"{name} {number(value)}"
        for name, value in metrics.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return ", ".join(shown[:METRICS])


def number(value: float) -> str:
    """With four digits: `0.1235`, `12.35`, `12350`."""
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _head(view: RunView) -> str:
    words = view.state.lower().replace("_", " ")
    failures = f", {view.failures} failures" if view.failures else ""
    return f"{words}, attempt {view.attempt}{failures}" if view.attempt else words
