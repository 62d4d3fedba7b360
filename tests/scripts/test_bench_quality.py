"""The benchmark of decisions: its traces, its bounds, and that no autoscaler undercuts them."""

from __future__ import annotations

import importlib
import pathlib
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "bench"


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    """The script as a module. Its folder is last in the path: a script there is called as a package of ours is."""
    sys.path.append(str(BENCH))
    names = set(sys.modules)
    try:
        yield importlib.import_module("quality")
    finally:
        sys.path.remove(str(BENCH))
        for name in set(sys.modules) - names:
            if str(BENCH) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def test_there_are_traces_enough_and_they_are_the_same_each_time(bench: ModuleType) -> None:
    made = bench.cases()
    assert len(made) >= 20
    assert made == bench.cases()
    for case in made.values():
        assert bench.trace_of(case)  # the format is checked


@pytest.mark.parametrize(
    "name",
    [
        "bursts",
        "gangs: STRICT_SPREAD",
        "GPU fractions",
        "memory and CPU",
        "labels",
        "max_workers",
        "spot loss",
    ],
)
def test_all_is_served_and_no_bound_is_undercut(bench: ModuleType, name: str) -> None:
    row = bench.compare(bench.cases()[name], None, 0.0)
    assert row.ours.unserved == 0
    assert row.ours.cost >= row.least_cost > 0
    assert row.ours.wait_s >= row.least_wait_s > 0


def tiny(bench: ModuleType, **trace: object) -> object:
    traces = sys.modules["traces"]
    kinds = (
        traces.Kind("small", {"CPU": 4}, 1.0, most=2),
        traces.Kind("gpu", {"CPU": 8, "GPU": 1}, 4.0, most=1, spot=2.0),
    )
    return bench.Case("tiny", "", kinds, {"name": "tiny", **trace}, boot_s=30.0, setup_s=10.0)


def task(count: int, duration_s: float, at_s: float = 0.0, **resources: float) -> dict[str, object]:
    return {"at_s": at_s, "count": count, "resources": resources, "duration_s": duration_s}


def test_the_cost_bound_is_that_of_the_cheapest_packing(bench: ModuleType) -> None:
    found = bench.bounds(tiny(bench, tasks=[task(4, 3600, CPU=1)]))
    assert found["cost"] == pytest.approx(1.0, rel=1e-4)
    # The GPU's machine is paid at its lowest price, and takes CPU work beside it.
    found = bench.bounds(tiny(bench, tasks=[task(1, 3600, GPU=1), task(8, 3600, CPU=1)]))
    assert found["cost"] == pytest.approx(2.0, rel=1e-4)
    found = bench.bounds(tiny(bench, tasks=[task(1, 3600, GPU=1, CPU=8), task(4, 3600, CPU=1)]))
    assert found["cost"] == pytest.approx(3.0, rel=1e-4)


def test_what_must_be_together_costs_the_machine_that_can_hold_it(bench: ModuleType) -> None:
    bundles = [{"CPU": 4}, {"CPU": 4}]
    apart = {"at_s": 0, "strategy": "SPREAD", "bundles": bundles, "count": 1, "duration_s": 3600}
    assert bench.bounds(tiny(bench, groups=[apart]))["cost"] == pytest.approx(2.0, rel=1e-4)
    together = {**apart, "strategy": "STRICT_PACK", "bundles": [{"CPU": 3}, {"CPU": 3}]}
    assert bench.bounds(tiny(bench, groups=[together]))["cost"] == pytest.approx(1.5, rel=1e-4)


def test_the_waiting_bound_is_the_first_boot(bench: ModuleType) -> None:
    found = bench.bounds(tiny(bench, tasks=[task(1, 10, CPU=1), task(1, 10, at_s=25, CPU=1)]))
    assert found["wait_s"] == pytest.approx((40 + 15) / 2)


def test_the_waiting_bound_counts_the_queue_before_the_maxima(bench: ModuleType) -> None:
    # 16 CPUs at most, from second 40: three rounds of a minute.
    found = bench.bounds(tiny(bench, tasks=[task(48, 60, CPU=1)]))
    assert 40 < found["wait_s"] <= 40 + 60


def test_work_that_fits_nowhere_has_no_bound(bench: ModuleType) -> None:
    with pytest.raises(ValueError, match="fits on no node type"):
        bench.bounds(tiny(bench, tasks=[task(1, 10, CPU=99)]))


def test_the_table_goes_between_its_marks(bench: ModuleType, tmp_path: pathlib.Path) -> None:
    side = bench.Side(1.0, 2.0, 3.0, 0, 0.1)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{bench.BEGIN}\nold\n{bench.END}\nafter\n")
    bench.write_table([bench.Row("a", "what", side, 0.5, 1.0, side)], page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| a: what | 1.00 | 1.00 | 0.50 |" in text
    page.write_text("nothing")
    with pytest.raises(ValueError, match="no place for the table"):
        bench.write_table([], page)


def test_who_is_beaten(bench: ModuleType) -> None:
    ray = bench.Side(1.0, 60.0, 60.0, 0, 0.1)
    assert not bench.is_beaten(bench.Side(1.01, 60.5, 0, 0, 0), ray)
    assert bench.is_beaten(bench.Side(1.1, 60.0, 0, 0, 0), ray)
    assert bench.is_beaten(bench.Side(1.0, 70.0, 0, 0, 0), ray)
    assert not bench.is_beaten(bench.Side(0.8, 70.0, 0, 0, 0), ray)
