"""The lines that a terminal shows of an execution. Pure."""

from __future__ import annotations

from .views import ExecutionView, OperatorView

BAR_WIDTH = 16
NAME_WIDTH = 40
"""Longer names of operators are cut."""


def lines(name: str, view: ExecutionView, with_operators: bool = True) -> list[str]:
    """A line for the data set, and one for each operator.

    Args:
        name: of the data set.
    """
    held = f"{size(view.held_bytes)} of {size(view.budget_bytes)} held"
    head = f"{name}: {number(view.rows)} rows, {held}, {view.seconds:.0f} s"
    if not with_operators or not view.operators:
        return [head]
    width = min(NAME_WIDTH, max(len(each.name) for each in view.operators))
    return [head, *(f"  {_operator(each, width)}" for each in view.operators)]


def last_line(name: str, view: ExecutionView, failed: bool) -> str:
    """What stays on the terminal when the data set has ended."""
    ended = "failed after" if failed else "in"
    return f"{name}: {number(view.rows)} rows {ended} {view.seconds:.1f} s"


def _operator(view: OperatorView, width: int) -> str:
    name = view.name if len(view.name) <= width else f"{view.name[: width - 1]}…"
    part = view.done_part
    filled = round(BAR_WIDTH * (part or 0.0))
    bar = f"{'   ?' if part is None else f'{100 * part:3.0f}%'}|{'#' * filled}{' ' * (BAR_WIDTH - filled)}|"
    total = "?" if view.expected is None else f"{view.expected}"
    rate = f", {number(view.rows / view.seconds)} rows/s" if view.seconds > 0 and view.rows else ""
    told = f"{view.finished}/{total} tasks, {number(view.rows)} rows{rate}"
    if view.held_bytes:
        told += f", {size(view.held_bytes)} held"
    if view.running:
        told += f", {view.running} running"
    if view.failed:
        told += f", {view.failed} failed"
    if view.waits_for:
        told += f", waits for {view.waits_for}"
    return f"{name:{width}} {bar} {told}"


def number(value: float) -> str:
    """A number of things in at most five characters: `950`, `1.2k`, `35M`."""
    for unit in ("", "k", "M", "G"):
        if value < 999.5 or unit == "G":
            return f"{value:.0f}{unit}" if value >= 10 or not unit else f"{value:.1f}{unit}"
        value /= 1000
    raise AssertionError


def size(size_bytes: float) -> str:
    """Bytes in words: `512 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size_bytes < 1024 or unit == "TiB":
            return (
                f"{size_bytes:.0f} {unit}" if size_bytes >= 10 or unit == "B" else f"{size_bytes:.1f} {unit}"
            )
        size_bytes /= 1024
    raise AssertionError
