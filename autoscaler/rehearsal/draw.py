"""A rehearsal as a picture: nodes, queue and cost over time, as SVG text. No dependency: SVG is text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from autoscaler.rehearsal.rehearse import DRAINING, ENDING, RUNNING, STARTING, Result, Sample

WIDTH = 1000
LEFT, RIGHT, TOP = 64, 236, 88
PANEL, GAP, BOTTOM = 190, 34, 44
PLOT = WIDTH - LEFT - RIGHT
COLUMN_PX = 2
"""The picture is no finer than that."""
MOST_SERIES = 7
"""More shapes than that in the queue are drawn as one, "others"."""

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6d31", "#7f7f7f")
"""Told apart by the colour-blind, too (Okabe and Ito, https://jfly.uni-koeln.de/color/)."""
SHAPE_COLOURS = ("#332288", "#44aa99", "#ddcc77", "#882255", "#88ccee", "#cc6677", "#999933")
"""Others than those of the node types, so that nobody takes work for machines (Tol's muted scheme)."""
INK, FAINT, GRID, ALARM = "#222222", "#666666", "#e4e4e4", "#b00020"
MOST_MISHAPS = 6
"""So many are named beside the picture; each line and shade has its name as a hint."""


@dataclass(frozen=True, slots=True)
class _Series:
    """One layer of a stack: a value per sample."""

    label: str
    fill: str
    value: Callable[[Sample], float]
    in_legend: bool = True


def svg(result: Result) -> str:
    """The rehearsal as an SVG document."""
    end_s = max(result.summary.end_s, 1e-9)
    samples = result.thinned(PLOT // COLUMN_PX)
    names = sorted({name for sample in result.samples for name in sample.nodes})
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    height = TOP + 3 * PANEL + 2 * GAP + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        "<defs>",
        *(_stripes(index, colour) for index, colour in enumerate(colours.values())),
        "</defs>",
        _text(LEFT, 26, result.summary.name, size=17, weight="bold"),
        _text(LEFT, 46, _headline(result), colour=FAINT),
    ]
    y = TOP
    nodes = _node_series(names, colours, samples)
    parts += _stack(y, "workers", nodes, _node_hints(samples), samples, end_s)
    y += PANEL + GAP
    parts += _stack(y, "waiting", _queue_series(result.samples), [], samples, end_s)
    y += PANEL + GAP
    parts += _cost(y, samples, end_s)
    parts += _mishaps(result, end_s, y + PANEL)
    parts += _time_axis(y + PANEL, end_s)
    parts.append("</svg>\n")
    return "\n".join(parts)


def _headline(result: Result) -> str:
    summary = result.summary
    done = sum(summary.finished.values())
    waited = summary.waited["all"]
    text = (
        f"cost {summary.cost:.2f}; {done} pieces of work done in {span(summary.makespan_s)}; "
        f"waited {span(waited.mean_s)} on average, {span(waited.p95_s)} at most for 95 %"
    )
    left = sum(entry.count for entry in summary.unserved)
    return f"{text}; {left} unserved" if left else text


def span(seconds: float) -> str:
    """A length of time for people: 45 s, 12.5 min, 3.2 h."""
    for size, unit in ((86400 * 2, "d"), (3600 * 2, "h"), (120, "min")):
        if seconds >= size:
            return f"{seconds / {'d': 86400, 'h': 3600, 'min': 60}[unit]:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.1f} s"


# ---------------------------------------------------------------- series


def _node_series(names: Iterable[str], colours: dict[str, str], samples: Sequence[Sample]) -> list[_Series]:
    series: list[_Series] = []
    for index, name in enumerate(names):
        colour = colours[name]
        series.append(_Series(name, colour, _counted(name, RUNNING)))
        series.append(_Series(name, _lighter(colour), _counted(name, STARTING), in_legend=False))
        series.append(
            _Series(name, f"url(#stripes{index})", _counted(name, DRAINING, ENDING), in_legend=False)
        )
    return [one for one in series if one.in_legend or any(one.value(sample) for sample in samples)]


def _counted(name: str, *states: str) -> Callable[[Sample], float]:
    return lambda sample: sum(sample.nodes.get(name, {}).get(state, 0) for state in states)


def _node_hints(samples: Sequence[Sample]) -> list[str]:
    starting = any(sample.in_state(STARTING) for sample in samples)
    leaving = any(sample.in_state(DRAINING) + sample.in_state(ENDING) for sample in samples)
    return ["pale: no node yet"] * starting + ["striped: drained or ended"] * leaving


def _queue_series(samples: Sequence[Sample]) -> list[_Series]:
    area: dict[str, float] = {}
    for sample, following in pairwise(samples):
        for label, count in sample.queue.items():
            area[label] = area.get(label, 0.0) + count * (following.at_s - sample.at_s)
    ordered = sorted(area, key=lambda label: (-area[label], label))
    few = ordered if len(ordered) <= MOST_SERIES else ordered[: MOST_SERIES - 1]
    series = [
        _Series(label, SHAPE_COLOURS[index], _queued(frozenset((label,)))) for index, label in enumerate(few)
    ]
    rest = frozenset(ordered[len(few) :])
    if rest:
        series.append(_Series(f"{len(rest)} others", SHAPE_COLOURS[len(few)], _queued(rest)))
    return series


def _queued(labels: frozenset[str]) -> Callable[[Sample], float]:
    return lambda sample: sum(count for label, count in sample.queue.items() if label in labels)


# ---------------------------------------------------------------- panels


def _stack(
    y: float,
    title: str,
    series: Sequence[_Series],
    hints: Sequence[str],
    samples: Sequence[Sample],
    end_s: float,
) -> list[str]:
    """Layers upon each other, each a step function of time."""
    bases = [0.0] * len(samples)
    layers: list[tuple[_Series, list[float], list[float]]] = []
    for one in series:
        tops = [base + one.value(sample) for base, sample in zip(bases, samples, strict=True)]
        layers.append((one, bases, tops))
        bases = tops
    most, ticks = _scale(max(bases, default=0.0), whole=True)
    parts = _frame(y, title, most, ticks)

    def place(value: float) -> float:
        return y + PANEL * (1 - value / most)

    xs = [LEFT + PLOT * sample.at_s / end_s for sample in samples]
    for one, low, high in layers:
        if low != high:
            outline = _steps(xs, [place(value) for value in high])
            outline += reversed(_steps(xs, [place(value) for value in low]))
            corners = " ".join(f"{x:.1f},{at:.1f}" for x, at in outline)
            parts.append(f'<polygon points="{corners}" fill="{one.fill}"/>')
    row = 0
    for one in series:
        if one.in_legend:
            parts += _legend(y, row, one.label, one.fill)
            row += 1
    for hint in hints:
        parts.append(_text(LEFT + PLOT + 16, y + 11 + row * 18, hint, colour=FAINT))
        row += 1
    if not any(bases):
        parts.append(_text(LEFT + PLOT / 2, y + PANEL / 2, "none", colour=FAINT, anchor="middle"))
    return parts


def _steps(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    """The corners of a step function: every value holds until the next x."""
    corners = [(xs[0], ys[0])]
    for x, (before, after) in zip(xs[1:], pairwise(ys), strict=True):
        if after != before:
            corners += [(x, before), (x, after)]
    return [*corners, (xs[-1], ys[-1])]


def _cost(y: float, samples: Sequence[Sample], end_s: float) -> list[str]:
    """Cost so far: it grows evenly between samples."""
    most, ticks = _scale(samples[-1].cost, whole=False)
    parts = _frame(y, "cost so far", most, ticks)
    points = [
        f"{LEFT + PLOT * sample.at_s / end_s:.1f},{y + PANEL * (1 - sample.cost / most):.1f}"
        for sample in samples
    ]
    parts.append(
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{COLOURS[5]}" stroke-width="2"/>'
    )
    parts += _legend(y, 0, f"{samples[-1].cost:.2f} in all", COLOURS[5])
    if not samples[-1].cost:
        parts.append(_text(LEFT + PLOT + 16, y + 29, "no prices are known", colour=FAINT))
    return parts


def _frame(y: float, title: str, most: float, ticks: Sequence[float]) -> list[str]:
    parts = [_text(LEFT, y - 8, title, weight="bold")]
    for tick in ticks:
        at = y + PANEL * (1 - tick / most)
        parts.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{LEFT + PLOT}" y2="{at:.1f}" stroke="{GRID}"/>')
        parts.append(_text(LEFT - 8, at + 4, f"{tick:,.10g}", colour=FAINT, anchor="end"))
    parts.append(f'<path d="M{LEFT},{y}V{y + PANEL}H{LEFT + PLOT}" fill="none" stroke="{FAINT}"/>')
    return parts


def _legend(y: float, row: int, label: str, fill: str) -> list[str]:
    at = y + row * 18
    shown = label.removeprefix("placement group ")
    shown = shown if len(shown) <= 28 else shown[:27] + "…"
    return [
        f'<rect x="{LEFT + PLOT + 16}" y="{at + 1}" width="11" height="11" fill="{fill}"/>',
        f"<g><title>{escape(label)}</title>{_text(LEFT + PLOT + 33, at + 11, shown)}</g>",
    ]


def _mishaps(result: Result, end_s: float, bottom: float) -> list[str]:
    """A shade over all panels for as long as a fault lasts, a dashed line where it begins."""
    parts: list[str] = []
    for mishap in result.mishaps:
        x = LEFT + PLOT * mishap.at_s / end_s
        parts.append(f"<g><title>{escape(mishap.text)}</title>")
        if mishap.until_s is not None:
            width = PLOT * (mishap.until_s - mishap.at_s) / end_s
            parts.append(
                f'<rect x="{x:.1f}" y="{TOP}" width="{width:.1f}" height="{bottom - TOP}" fill="{ALARM}" '
                'fill-opacity="0.07"/>'
            )
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{ALARM}" stroke-dasharray="3 4"/></g>'
        )
    if parts:
        x, said = LEFT + PLOT + 16, list(dict.fromkeys(mishap.text for mishap in result.mishaps))
        for row, text in enumerate(reversed(said[:MOST_MISHAPS])):
            parts.append(_text(x, bottom - 4 - 16 * row, text, colour=ALARM, size=11))
        parts.append(
            _text(
                x, bottom - 4 - 16 * min(len(said), MOST_MISHAPS), "what went wrong:", colour=ALARM, size=11
            )
        )
    return parts


_UNITS = (
    (86400.0, "days", (1, 2, 5, 10, 20)),
    (3600.0, "h", (0.5, 1, 2, 3, 6, 12)),
    (60.0, "min", (0.5, 1, 2, 5, 10, 15, 20, 30)),
    (1.0, "s", (1, 2, 5, 10, 20, 50)),
)


def _time_axis(y: float, end_s: float) -> list[str]:
    unit_s, unit, steps = next((one for one in _UNITS if end_s >= 3 * one[0]), _UNITS[-1])
    step = next((step for step in steps if end_s / unit_s / step <= 9), steps[-1])
    parts = []
    for number in range(int(end_s / unit_s / step * 1.0001) + 1):
        x = LEFT + PLOT * number * step * unit_s / end_s
        parts.append(f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + 5}" stroke="{FAINT}"/>')
        parts.append(_text(x, y + 19, f"{number * step:g}", colour=FAINT, anchor="middle"))
    parts.append(_text(LEFT + PLOT, y + 36, f"time ({unit})", colour=FAINT, anchor="end"))
    return parts


def _scale(highest: float, *, whole: bool) -> tuple[float, list[float]]:
    """The top of an axis, a little above `highest`, and about four round ticks from 0 on."""
    if highest <= 0:
        return 1.0, [0.0, 1.0]
    raw = highest / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    if whole:
        step = max(1.0, step)
    count = math.ceil(highest / step - 1e-9)
    return step * count, [step * index for index in range(count + 1)]


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    colour: str = INK,
    anchor: str = "start",
    weight: str = "normal",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )


def _lighter(colour: str) -> str:
    """The colour on paper with two thirds of the paper showing."""
    parts = [int(colour[index : index + 2], 16) for index in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - (255 - part) / 3):02x}" for part in parts)


def _stripes(index: int, colour: str) -> str:
    return (
        f'<pattern id="stripes{index}" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="6" height="6" fill="#ffffff"/>'
        f'<rect width="2.5" height="6" fill="{colour}"/></pattern>'
    )
