"""A chart with two logarithmic axes, as SVG: what grows how."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 30, 50, 90
COLOURS = ("#1f6fb4", "#c0392b", "#2e8b57", "#8e6c1f")


@dataclass(slots=True)
class Series:
    """One line: (x, y), both above zero."""

    name: str
    points: list[tuple[float, float]] = field(default_factory=list)


def draw(title: str, x_name: str, y_name: str, series: Sequence[Series]) -> str:
    """The chart of some lines."""
    xs = [x for line in series for x, _ in line.points]
    ys = [y for line in series for _, y in line.points]
    x_low, x_high = _decades(xs)
    y_low, y_high = _decades(ys)

    def at(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - x_low) / (x_high - x_low)
        up = (math.log10(y) - y_low) / (y_high - y_low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="26" font-size="15">{escape(title)}</text>',
    ]
    for power in range(x_low, x_high + 1):
        x, bottom = at(10.0**power, 10.0**y_low)
        _, top = at(10.0**power, 10.0**y_high)
        parts.append(f'<line x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 20:.1f}" text-anchor="middle">{10.0**power:,g}</text>')
    for power in range(y_low, y_high + 1):
        left, y = at(10.0**x_low, 10.0**power)
        right, _ = at(10.0**x_high, 10.0**power)
        parts.append(f'<line x1="{left:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle:.1f}" y="{HEIGHT - BOTTOM + 40}" text-anchor="middle">{escape(x_name)}</text>'
    )
    parts.append(f'<text x="{LEFT - 52}" y="{TOP - 8}">{escape(y_name)}</text>')
    for number, line in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in line.points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for point in line.points:
            x, y = at(*point)
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{escape(line.name)}: '
                f"{point[0]:,g} {escape(x_name)}, {point[1]:.3g} {escape(y_name)}</title></circle>"
            )
        x = LEFT + number * (WIDTH - LEFT - RIGHT) / len(series)
        parts.append(f'<rect x="{x:.1f}" y="{HEIGHT - 28}" width="14" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 20:.1f}" y="{HEIGHT - 22}">{escape(line.name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around all values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)
