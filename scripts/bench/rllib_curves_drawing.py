"""Learning curves as SVG: a panel for each task, a line for each side's median, a band from the worst seed to the
best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from rllib_curves_tasks import OURS, SB3

WIDTH, HEIGHT, COLUMNS = 360, 240, 2
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 34, 40
COLOURS = {OURS: "#1f6fb4", SB3: "#c0392b"}
NAMES = {OURS: "this engine", SB3: "Stable-Baselines3"}
Row = Sequence[float]  # env steps, least, median, most


def draw(tasks: Mapping[str, Mapping[str, Sequence[Row]]]) -> str:
    """The panels of all tasks."""
    rows = -(-len(tasks) // COLUMNS)
    width, height = COLUMNS * WIDTH, rows * HEIGHT + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (name, sides) in enumerate(tasks.items()):
        across, down = number % COLUMNS * WIDTH, number // COLUMNS * HEIGHT
        parts += [f'<g transform="translate({across},{down})">', *_panel(name, sides), "</g>"]
    for number, (side, label) in enumerate(NAMES.items()):
        x, y = LEFT + 150 * number, height - 12
        parts.append(f'<rect x="{x}" y="{y - 6}" width="14" height="4" fill="{COLOURS[side]}"/>')
        parts.append(f'<text x="{x + 20}" y="{y}">{escape(label)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(name: str, sides: Mapping[str, Sequence[Row]]) -> list[str]:
    rows = [row for side in sides.values() for row in side]
    most_steps = max(row[0] for row in rows)
    low, high = min(row[1] for row in rows), max(row[3] for row in rows)
    high = high if high > low else low + 1

    def at(steps: float, value: float) -> str:
        x = LEFT + steps / most_steps * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return f"{x:.1f},{y:.1f}"

    parts = [f'<text x="{LEFT}" y="20" font-size="13">{escape(name)}</text>']
    for share in (0.0, 0.5, 1.0):
        value = low + share * (high - low)
        left, right = at(0, value).split(","), at(most_steps, value).split(",")
        parts.append(f'<line x1="{left[0]}" y1="{left[1]}" x2="{right[0]}" y2="{right[1]}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{float(left[1]) + 4:.1f}" text-anchor="end">{value:,.0f}</text>'
        )
        steps = share * most_steps
        x = at(steps, low).split(",")[0]
        parts.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{steps:,.0f}</text>')
    for side, found in sides.items():
        band = [at(row[0], row[1]) for row in found] + [at(row[0], row[3]) for row in reversed(found)]
        parts.append(f'<polygon points="{" ".join(band)}" fill="{COLOURS[side]}" opacity="0.12"/>')
        line = " ".join(at(row[0], row[2]) for row in found)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[side]}" stroke-width="2"/>')
    return parts
