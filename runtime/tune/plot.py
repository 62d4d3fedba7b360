"""Pictures of an experiment's results, as SVG that is written here: no plotting library is needed.

A notebook shows a `Figure` that a cell ends with.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.train._core import retention
from runtime.tune._api.result_grid import ResultGrid
from runtime.tune._core import importance
from runtime.tune._core.svg import ACCENT, INK, Drawing, LinearScale, colour, is_number, scale_of, short
from runtime.tune.logger.flat import flat

WIDTH, HEIGHT = 860, 480
LEFT, TOP, BOTTOM = 90, 60, 420
MOST_AXES = 12
"""Parameters in parallel coordinates, the most important ones."""


@dataclass(frozen=True)
class Figure:
    """A picture.

    Attributes:
        svg: Its text.
        data: What it shows. See the function that made it.
    """

    svg: str = field(repr=False)
    data: Mapping[str, Any] = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Writes the picture to a file, and returns its path.

        Raises:
            ValueError: The name does not end with ".svg".
        """
        target = pathlib.Path(path)
        if target.suffix.lower() != ".svg":
            raise ValueError(
                f"A Figure is saved as SVG: the name must end with .svg, and it is {target.name!r}."
            )
        target.write_text(self.svg, encoding="utf-8")
        return target

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return self.svg


def history(grid: ResultGrid, metric: str | None = None, mode: str | None = None) -> Figure:
    """The last value of each trial in the order of the trials, and the best so far. Trials without a finite value are
    left out.

    Args:
        grid: The results.
        metric, mode: Default: those of the TuneConfig.

    Returns:
        A Figure. Its data: "trials", "values" and "best", each with one entry per trial.

    Raises:
        ValueError: There is no metric or mode, or no trial has the metric.
    """
    metric, mode = _meant(grid, metric, mode)
    found = _finished(grid, metric)
    numbers, values = [number for number, _, _ in found], [value for _, _, value in found]
    best: list[float] = []
    pick = max if mode == "max" else min
    for value in values:
        best.append(pick(best[-1], value) if best else value)
    right = WIDTH - 30
    drawing = Drawing(WIDTH, HEIGHT, f"History of {metric}")
    across, up = LinearScale(0, max(1, len(grid) - 1)), scale_of(values)
    drawing.horizontal_axis(across, LEFT, right, BOTTOM, "trial", TOP)
    drawing.vertical_axis(up, BOTTOM, TOP, LEFT, metric, right)

    def at(number: int, value: float) -> tuple[float, float]:
        x, y = across.place(number) or 0.0, up.place(value) or 0.0
        return LEFT + x * (right - LEFT), BOTTOM - y * (BOTTOM - TOP)

    for number, value in zip(numbers, values, strict=True):
        drawing.circle(*at(number, value), 3.5, colour(0.3), f"trial {number}: {value:.6g}", fill_opacity=0.6)
    steps = [at(numbers[0], best[0])]
    for number, value in zip(numbers[1:], best[1:], strict=True):
        x, y = at(number, value)
        steps += [(x, steps[-1][1]), (x, y)]
    drawing.line(steps, ACCENT, 2.5)
    drawing.line([(LEFT + 10, TOP - 14), (LEFT + 34, TOP - 14)], ACCENT, 2.5)
    drawing.text(LEFT + 40, TOP - 10, "best so far")
    return Figure(drawing.svg(), {"trials": numbers, "values": values, "best": best})


def parallel_coordinates(grid: ResultGrid, metric: str | None = None, mode: str | None = None) -> Figure:
    """A line for each trial, through its parameters and the last value of the metric, which colours it. The best trials
    are drawn last. Parameters that are the same in all trials are left out; of many the most important ones are shown.

    Args:
        grid: The results.
        metric, mode: Default: those of the TuneConfig.

    Returns:
        A Figure. Its data: "axes", the names from left to right, and "lines", the values of each trial.

    Raises:
        ValueError: There is no metric or mode, or no trial has the metric.
    """
    metric, mode = _meant(grid, metric, mode)
    found = _finished(grid, metric)
    configs, values = [config for _, config, _ in found], [value for _, _, value in found]
    names = importance.varying(configs)
    if len(names) > MOST_AXES:
        kept = set(list(importance.importances(configs, values))[:MOST_AXES])
        names = [name for name in names if name in kept]
    axes = [*names, metric]
    rows = [
        [*(config.get(name) for name in names), value] for config, value in zip(configs, values, strict=True)
    ]
    scales = [scale_of([row[index] for row in rows if row[index] is not None]) for index in range(len(axes))]
    width = max(WIDTH, 110 * len(axes))
    right = width - 130
    places = [LEFT + (right - LEFT) * index / max(1, len(axes) - 1) for index in range(len(axes))]
    drawing = Drawing(width, HEIGHT, f"Parameters and {metric}")
    order = sorted(range(len(rows)), key=values.__getitem__, reverse=mode == "min")
    for row in (rows[index] for index in order):
        points = [
            (x, BOTTOM - place * (BOTTOM - TOP - 20))
            for x, scale, value in zip(places, scales, row, strict=True)
            if value is not None and (place := scale.place(value)) is not None
        ]
        share = scales[-1].place(row[-1]) or 0.0
        drawing.line(points, colour(share), 1.5, stroke_opacity=0.75)
    for x, name, scale in zip(places, axes, scales, strict=True):
        drawing.line([(x, BOTTOM), (x, TOP + 20)], INK)
        for place, text in scale.ticks():
            y = BOTTOM - place * (BOTTOM - TOP - 20)
            drawing.line([(x - 4, y), (x, y)], INK)
            drawing.text(x - 7, y + 4, text, "end", 11, stroke="#ffffff", stroke_width=4)  # free of lines
            drawing.text(x - 7, y + 4, text, "end", 11)
        drawing.text(x, BOTTOM + 24, short(name), "middle")
    drawing.colour_bar(scales[-1], width - 80, BOTTOM, TOP + 20, metric)
    return Figure(drawing.svg(), {"axes": axes, "lines": rows})


def importances(grid: ResultGrid, metric: str | None = None) -> Figure:
    """How much each parameter alone says about the last value of the metric, as bars from 0 to 1.

    The measure is the share of the variance of the metric's ranks that groups of the parameter's values explain,
    adjusted for the number of groups. `runtime.tune._core.importance.importances` has the details. It needs some dozens
    of trials, and says less where a searcher has tried a part of the space only.

    Args:
        grid: The results.
        metric: Default: that of the TuneConfig.

    Returns:
        A Figure. Its data: the importance of each parameter, the most important first.

    Raises:
        ValueError: There is no metric, no trial has it, or no parameter differs.
    """
    metric, _ = _meant(grid, metric, "max")
    found = _finished(grid, metric)
    measured = importance.importances([config for _, config, _ in found], [value for _, _, value in found])
    if not measured:
        raise ValueError("No parameter differs between the trials, so none is important.")
    left, bar, gap = 190, 22, 12
    bottom = TOP + len(measured) * (bar + gap)
    drawing = Drawing(WIDTH, bottom + 60, f"Importance of parameters for {metric}")
    right = WIDTH - 80
    drawing.horizontal_axis(
        LinearScale(0, 1), left, right, bottom, "explained share of the variance of ranks", TOP
    )
    for index, (name, value) in enumerate(measured.items()):
        y = TOP + index * (bar + gap) + gap / 2
        drawing.rectangle(left, y, value * (right - left), bar, colour(0.3), class_="bar")
        drawing.text(left - 10, y + bar / 2 + 4, name if len(name) <= 24 else f"…{name[-23:]}", "end")
        drawing.text(left + value * (right - left) + 6, y + bar / 2 + 4, f"{value:.2f}")
    drawing.line([(left, TOP), (left, bottom)], INK)
    return Figure(drawing.svg(), measured)


def _meant(grid: ResultGrid, metric: str | None, mode: str | None) -> tuple[str, str]:
    metric, mode = metric or grid.default_metric, mode or grid.default_mode
    if not isinstance(metric, str):
        raise ValueError("No metric: pass one, or set it in the TuneConfig.")
    if mode not in ("min", "max"):
        raise ValueError(f'mode must be "min" or "max", not {mode!r}: pass it, or set it in the TuneConfig.')
    return metric, mode


def _finished(grid: Iterable[Any], metric: str) -> list[tuple[int, dict[str, Any], float]]:
    """Number, configuration and last value of each trial that has one."""
    found = []
    for number, result in enumerate(grid):
        value = retention.lookup(result.metrics or {}, metric)
        if is_number(value):
            found.append((number, flat(result.config or {}), float(value)))
    if not found:
        raise ValueError(f"No trial has a finite value of the metric {metric!r}.")
    return found
