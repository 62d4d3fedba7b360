"""Pictures of a study, read as XML."""

from __future__ import annotations

import pathlib
import random
import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from runtime.tune import plot
from runtime.tune._api.resources import resources_to_factory
from runtime.tune._api.result_grid import ResultGrid
from runtime.tune._core.trial import Trial

SVG = "{http://www.w3.org/2000/svg}"


Rows = list[tuple[dict[str, Any], Any]]


def grid_of(rows: Rows, metric: str | None = "loss", mode: str | None = "min") -> ResultGrid:
    trials = []
    for number, (config, loss) in enumerate(rows):
        trial = Trial(f"t_{number:05d}", number, "train", config, config, "", resources_to_factory(None))
        trial.last_result = {} if loss is None else {"loss": loss}
        trials.append(trial)
    return ResultGrid(trials, "/results", metric, mode)


def study(trials: int = 60) -> ResultGrid:
    chance = random.Random(7)
    rows = []
    for _ in range(trials):
        config = {
            "lr": 10 ** chance.uniform(-5, -1),
            "model": {"act": chance.choice(["relu", "a<b"])},
            "noise": chance.random(),
            "fixed": 3,
        }
        rows.append((config, (config["lr"] * 100) + 0.01 * chance.random()))
    return grid_of(rows)


def parsed(figure: plot.Figure) -> ElementTree.Element:
    return ElementTree.fromstring(figure.svg)


def texts(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text")]


def inside(root: ElementTree.Element) -> bool:
    """Whether all points are in the picture."""
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    points = [
        tuple(map(float, pair.split(",")))
        for line in root.iter(f"{SVG}polyline")
        for pair in line.attrib["points"].split()
    ]
    points += [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in root.iter(f"{SVG}circle")]
    return bool(points) and all(0 <= x <= width and 0 <= y <= height for x, y in points)


def test_the_history_has_a_dot_per_trial_and_the_best_so_far() -> None:
    figure = plot.history(grid_of([({"x": 1}, 5.0), ({"x": 2}, None), ({"x": 3}, 7.0), ({"x": 4}, 2.0)]))
    assert figure.data == {"trials": [0, 2, 3], "values": [5.0, 7.0, 2.0], "best": [5.0, 5.0, 2.0]}
    root = parsed(figure)
    dots = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in root.iter(f"{SVG}circle")]
    assert len(dots) == 3
    assert [x for x, _ in dots] == sorted(x for x, _ in dots)
    assert dots[1][1] < dots[0][1] < dots[2][1]  # larger is higher
    assert inside(root)
    shown = texts(root)
    assert {"History of loss", "trial", "loss", "best so far"} <= set(shown)


def test_the_history_of_values_far_apart_is_logarithmic() -> None:
    root = parsed(plot.history(grid_of([({"x": each}, 10.0**-each) for each in range(6)])))
    heights = [float(dot.attrib["cy"]) for dot in root.iter(f"{SVG}circle")]
    steps = [after - before for before, after in pairwise(heights)]
    assert steps == pytest.approx([steps[0]] * 5, abs=0.2)
    assert {"0.001", "1"} <= set(texts(root))


def test_parallel_coordinates_have_a_line_per_trial_with_the_best_on_top() -> None:
    grid = study()
    figure = plot.parallel_coordinates(grid)
    assert figure.data["axes"] == ["lr", "model/act", "noise", "loss"]
    root = parsed(figure)
    lines = [line for line in root.iter(f"{SVG}polyline") if "stroke-opacity" in line.attrib]
    assert len(lines) == len(grid)
    ends = [float(line.attrib["points"].split()[-1].split(",")[1]) for line in lines]
    assert ends[-1] == max(ends)  # the smallest loss is the lowest point, and drawn last
    assert len({line.attrib["stroke"] for line in lines}) > 10
    assert all(len(line.attrib["points"].split()) == 4 for line in lines)
    assert inside(root)
    assert "a<b" in texts(root)


def test_parameters_that_some_trials_lack_leave_a_gap() -> None:
    rows: Rows = [({"x": 1, "y": 2}, 1.0), ({"x": 2}, 2.0), ({"x": 3, "y": 4}, 3.0)]
    root = parsed(plot.parallel_coordinates(grid_of(rows)))
    lines = [line for line in root.iter(f"{SVG}polyline") if "stroke-opacity" in line.attrib]
    assert sorted(len(line.attrib["points"].split()) for line in lines) == [2, 3, 3]


def test_the_parameter_that_decides_is_the_important_one() -> None:
    figure = plot.importances(study())
    assert next(iter(figure.data)) == "lr"
    assert figure.data["lr"] > 0.9
    assert set(figure.data) == {"lr", "model/act", "noise"}
    assert max(figure.data["noise"], figure.data["model/act"]) < 0.2
    root = parsed(figure)
    widths = [
        float(bar.attrib["width"]) for bar in root.iter(f"{SVG}rect") if bar.attrib.get("class") == "bar"
    ]
    shares = list(figure.data.values())
    assert [width / widths[0] for width in widths] == pytest.approx(
        [share / shares[0] for share in shares], abs=1e-3
    )


def test_a_figure_is_saved_and_shown_by_notebooks(tmp_path: pathlib.Path) -> None:
    figure = plot.history(study(5))
    path = figure.save(tmp_path / "history.svg")
    assert path.read_text(encoding="utf-8") == figure.svg == figure._repr_svg_()
    assert re.match(r"<svg [^>]*viewBox=", figure.svg)
    with pytest.raises(ValueError, match=r"must end with \.svg"):
        figure.save(tmp_path / "history.png")


def test_what_cannot_be_drawn_raises() -> None:
    with pytest.raises(ValueError, match="No metric"):
        plot.history(grid_of([({"x": 1}, 1.0)], metric=None))
    with pytest.raises(ValueError, match="mode must be"):
        plot.history(grid_of([({"x": 1}, 1.0)], mode=None))
    with pytest.raises(ValueError, match="No trial has a finite value"):
        plot.history(grid_of([({"x": 1}, float("nan"))]))
    with pytest.raises(ValueError, match="No parameter differs"):
        plot.importances(grid_of([({"x": 1}, 1.0), ({"x": 1}, 2.0)]))
