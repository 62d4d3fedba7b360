"""What an execution has done, as text."""

from __future__ import annotations

from collections.abc import Callable

from runtime.data._exec.figures import Figures, Spread
from runtime.data._exec.operators import Stage
from runtime.data._exec.state import Execution
from runtime.data._watch.bars import number, size
from runtime.data._watch.consumer import Consumer


def summary(execution: Execution, consumer: Consumer) -> str:
    """One paragraph for each operator that has run tasks, sources first, then the whole."""
    stages = [each for each in execution.operators if isinstance(each, Stage) and each.figures.tasks]
    lines: list[str] = []
    for place, stage in enumerate(stages):
        lines += [*_operator(place, stage.name, stage.figures), ""]
    begun = [each.figures.begun_s for each in stages if each.figures.begun_s is not None]
    ended = [each.figures.ended_s for each in stages if each.figures.ended_s is not None]
    took_s = max(0.0, max(ended) - min(begun)) if begun and ended else 0.0
    ledger = execution.ledger
    lines.append(
        f"Execution: {seconds(took_s)}; blocks held at most: {size(ledger.peak_bytes)} of {size(ledger.budget_bytes)}"
    )
    if execution.errored:
        lines.append(f"Failed tasks that were left out: {execution.errored}")
    lines.append(consumed(consumer))
    return "\n".join(lines)


def local_summary(plan: str, consumer: Consumer) -> str:
    """Of a plan that ran in this process."""
    return f"In this process, without tasks:\n{plan}\n\n{consumed(consumer)}"


def consumed(consumer: Consumer) -> str:
    """The line of the code that took the blocks."""
    return (
        f"Consumer: {consumer.rows:,} rows in {consumer.blocks} blocks; {seconds(consumer.waited_s)} waiting for "
        f"blocks, {seconds(consumer.fetched_s)} fetching them, {seconds(max(0.0, consumer.busy_s))} between them "
        "(batches, formats, your code)"
    )


def _operator(place: int, name: str, figures: Figures) -> list[str]:
    counts = [f"{figures.finished} tasks"]
    if figures.failed:
        counts.append(f"{figures.failed} failed")
    if figures.retried:
        counts.append(f"{figures.retried} repeated")
    took_s = 0.0
    if figures.begun_s is not None and figures.ended_s is not None:
        took_s = max(0.0, figures.ended_s - figures.begun_s)
    rows = figures.rows
    lines = [
        f"Operator {place} {name}: {', '.join(counts)}, {rows.count} blocks, {rows.total:,.0f} rows in "
        f"{seconds(took_s)}",
        _spread("Rows of a block", rows, lambda value: f"{value:,.0f}"),
        _spread("Size of a block", figures.size_bytes, size),
        _spread("Time of a block", figures.wall_s, seconds),
        _spread("CPU time of a block", figures.cpu_s, seconds),
        f"* Paused until blocks were taken: {seconds(figures.paused_s)} in all tasks together",
    ]
    if took_s > 0 and rows.total and figures.wall_s.total:
        each = rows.total / figures.wall_s.total
        lines.append(f"* Rows a second: {number(rows.total / took_s)}; of one task {number(each)}")
    return lines


def _spread(what: str, spread: Spread, told: Callable[[float], str]) -> str:
    between = f"{told(spread.least)} to {told(spread.most)}"
    return f"* {what}: {between}, mean {told(spread.mean)}, total {told(spread.total)}"


def seconds(value: float) -> str:
    """A duration with three digits: `12.0 s`, `350 ms`, `80 µs`."""
    if value >= 10:
        return f"{value:.1f} s"
    if value >= 1:
        return f"{value:.2f} s"
    if value >= 0.001:
        return f"{value * 1000:.3g} ms"
    return f"{value * 1_000_000:.0f} µs" if value else "0 s"
