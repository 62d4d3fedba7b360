"""How learning curves are compared and drawn."""

from __future__ import annotations

import importlib
import pathlib
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from types import ModuleType

import pytest

BENCH = pathlib.Path(__file__).parents[2] / "scripts" / "bench"


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    yield importlib.import_module("rllib_curves")
    for name in [name for name in sys.modules if name.startswith("rllib_curves")]:
        del sys.modules[name]


def test_a_curve_has_the_value_of_its_last_point(curves: ModuleType) -> None:
    curve = [(100, 1.0), (200, 2.0), (400, 4.0)]
    assert [curves.at(curve, steps) for steps in (50, 100, 199, 200, 399, 1000)] == [1, 1, 1, 2, 2, 4]


def test_the_last_quarter_counts(curves: ModuleType) -> None:
    late = curves.late([[(1, 0.0), (75, 10.0)], [(1, 5.0)]], 100)
    assert late == [10.0, 5.0]


@pytest.mark.parametrize(
    ("ours", "theirs", "passes"),
    [
        ([9.0, 10.0, 11.0], [10.0, 10.0, 10.0], True),
        ([9.0, 9.0, 9.0], [10.0, 10.0, 10.0], False),
        ([9.0, 9.0, 9.0], [7.0, 10.0, 13.0], True),  # within a standard error, 1.7
        ([8.0, 8.0, 8.0], [7.0, 10.0, 13.0], False),
    ],
)
def test_a_task_passes_within_a_standard_error(
    curves: ModuleType, ours: list[float], theirs: list[float], passes: bool
) -> None:
    assert curves.judge(ours, theirs)[0] is passes


def test_tasks_are_kept_and_drawn(curves: ModuleType, tmp_path: pathlib.Path) -> None:
    def summary(value: float) -> list[tuple[int, float, float, float]]:
        return curves.summary([[(1, 0.0), (50, value)], [(1, 0.0), (50, value + 2)]], 100)

    curves.keep(tmp_path, "one & only", {curves.OURS: summary(3.0), curves.SB3: summary(5.0)})
    curves.keep(tmp_path, "another", {curves.OURS: summary(1.0), curves.SB3: summary(1.0)})
    drawn = ET.fromstring((tmp_path / "rllib-curves.svg").read_text())
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"one & only", "another", "this engine", "Stable-Baselines3"} <= set(texts)
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}polyline"))) == 4
    assert summary(3.0)[-1] == (100, 3.0, 4.0, 5.0)
