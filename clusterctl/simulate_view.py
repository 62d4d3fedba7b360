"""The text of `clusterctl simulate`. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from autoscaler.rehearsal.rehearse import Event, Result, Summary
from clusterctl.output import duration, table

_ROWS = 20
_SAMPLES = 500
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def render(result: Result, cluster: str) -> list[str]:
    """All lines."""
    return [*_timeline(result, cluster), "", *_summary(result.summary)]


def events(happened: Iterable[Event]) -> list[str]:
    """What happened when, line by line."""
    return [f"  {clock(event.at_s)}  {event.text}" for event in happened]


def as_builtins(result: Result) -> dict[str, Any]:
    """The rehearsal as JSON shows it; times and costs to a thousandth."""
    summary = msgspec.to_builtins(result.summary)
    timeline = msgspec.to_builtins(result.thinned(_SAMPLES // 2))
    happened = msgspec.to_builtins(result.events)
    return {"summary": _rounded(summary), "timeline": _rounded(timeline), "events": _rounded(happened)}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, Mapping):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(entry) for entry in value]
    return value


def clock(seconds: float) -> str:
    """`1:02:03`."""
    whole = int(seconds + 1e-6)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _timeline(result: Result, cluster: str) -> list[str]:
    """A row per stretch of time: the most at once in it, and the cost until its end."""
    summary = result.summary
    names = sorted({name for sample in result.samples for name in sample.nodes})
    step_s = next((step for step in _STEPS_S if summary.end_s / step <= _ROWS), 0.0) or summary.end_s / _ROWS
    rows = []
    samples = deque(result.samples)
    current = samples[0]
    for number in range(max(1, math.ceil(summary.end_s / step_s - 1e-9))):
        until_s = min((number + 1) * step_s, summary.end_s)
        stretch = [current]
        while samples and (samples[0].at_s < until_s or until_s == summary.end_s):
            current = samples.popleft()
            stretch.append(current)
        rows.append(
            (
                clock(number * step_s),
                *(max(sum(sample.nodes.get(name, {}).values()) for sample in stretch) for name in names),
                max(sample.waiting for sample in stretch),
                max(sample.working for sample in stretch),
                f"{_cost_at(result, until_s):.2f}",
            )
        )
    title = f"'{summary.name}' on cluster '{cluster}': the most at once, from one time to the next"
    header = ("from", *names, "waiting", "working", "cost so far")
    return [title, *(f"  {line}" for line in table(header, rows))]


def _cost_at(result: Result, at_s: float) -> float:
    """Cost grows evenly between samples."""
    before = result.at(at_s)
    after = next((sample for sample in result.samples if sample.at_s > at_s), before)
    if after.at_s <= before.at_s:
        return before.cost
    return before.cost + (after.cost - before.cost) * (at_s - before.at_s) / (after.at_s - before.at_s)


_ENDED = {
    "rest": "came to rest",
    "until": "ended, as asked",
    "stall": "ended: for two hours every attempt was in vain",
    "limit": "ended: it did not come to rest within two weeks",
}


def _summary(summary: Summary) -> list[str]:
    tally = summary.tally
    ended = f"{_ENDED[summary.ended]} after {duration(summary.end_s)}"
    lines = [f"{ended}; the last work was done after {duration(summary.makespan_s)}"]
    if summary.cost or not summary.node_hours:
        lines.append(f"cost         {summary.cost:.2f}{_by_name(summary.cost_of, '.2f')}")
    else:
        lines.append("cost         unknown: give --price TYPE=PRICE, or `offers` in the trace")
    hours = sum(summary.node_hours.values())
    lines.append(
        f"node hours   {hours:.2f}{_by_name(summary.node_hours, '.2f')}, at most {summary.most_machines} workers"
    )
    used = ", ".join(f"{name} {share:.0%}" for name, share in sorted(summary.utilization.items()))
    lines.append(f"utilization  {used or 'nothing was used'}")
    lines.append(
        f"workers      {tally.launches} launched, {tally.removals} ended, {tally.lost} lost, {tally.nodes_died} nodes "
        f"died, {tally.refused} refused, {tally.setups_failed} setups failed"
    )
    rows = [
        (
            f"{kind}s",
            summary.finished.get(kind, 0),
            summary.interrupted.get(kind, 0),
            *(duration(value) for value in (waited.mean_s, waited.p50_s, waited.p95_s, waited.max_s)),
        )
        for kind, waited in summary.waited.items()
        if kind != "all" and waited.count
    ]
    if rows:
        header = ("", "done", "interrupted", "waited: mean", "half within", "95 % within", "longest")
        lines += ["", *table(header, rows)]
    if summary.unserved:
        lines += ["", "never served:"]
        lines += [f"  {entry.count} x {entry.what}: {entry.why}" for entry in summary.unserved]
    return lines


def _by_name(amounts: Mapping[str, float], form: str) -> str:
    parts = [f"{name} {amount:{form}}" for name, amount in sorted(amounts.items())]
    return f" ({', '.join(parts)})" if parts else ""
