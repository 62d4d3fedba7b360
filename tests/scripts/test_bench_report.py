"""docs/performance.md is made of the benchmarks' lines, and of nothing else."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "bench"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their annotations
    spec.loader.exec_module(module)
    return module


figures, page = load("figures"), load("page")


def line(benchmark: str, *rows: dict[str, Any], error: str = "") -> dict[str, Any]:
    machine = {"cpu": "some CPU", "cores": 2, "memory_gib": 8.0, "kernel": "Linux 6", "python": "3.11.7"}
    when = "2026-01-02T03:04:05+00:00"
    return {
        "benchmark": benchmark,
        "when": when,
        "machine": machine,
        "load": 0.5,
        "error": error,
        "figures": list(rows),
    }


def made(*lines: dict[str, Any]) -> str:
    text: str = page.page({each["benchmark"]: each for each in lines})
    return text


def row(name: str, value: float, unit: str = "s", **more: Any) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "meaning": "", **more}


def test_a_figure_with_its_goal() -> None:
    text = made(line("scale", row("a queued task", 900.0, "bytes", at_most=1024, meaning="growth")))
    assert "## Scale on one machine" in text
    assert "| a queued task | 900 bytes | at most 1,024 | growth |" in text


@pytest.mark.parametrize(("value", "shown"), [(2.0, "**2 s**"), (0.5, "0.5 s")])
def test_a_goal_that_is_missed_is_bold(value: float, shown: str) -> None:
    assert f"| {shown} | at most 1 |" in made(line("scale", row("x", value, at_most=1.0)))


def test_a_least_goal_that_is_missed_is_bold() -> None:
    assert "| **0.3** | at least 0.4 |" in made(line("contention", row("x", 0.3, "", at_least=0.4)))


def test_the_machine_and_the_day_are_told() -> None:
    text = made(line("rest", row("x", 1.0)))
    assert "Measured 2026-01-02 on 2 cores (some CPU), 8.0 GiB, Linux 6, Python 3.11.7;" in text
    assert "load average at the start: 0.5." in text


def test_a_comparison_has_both_sides_and_bold_where_the_floor_is_not_reached() -> None:
    compared = {"peer": 100.0, "floor": 8, "goal": 15}
    text = made(
        line(
            "engine",
            row("tasks", 1234567.0, "per second", ratio=12.3, **compared),
            row("calls", 500.0, "per second", ratio=5.0, **compared),
            row("puts", 7.0, "per second"),
        )
    )
    assert "| tasks | 1,234,567 per second | 100 per second | 12.3 | 8 | 15 |" in text
    assert "| calls | 500 per second | 100 per second | **5** | 8 | 15 |" in text
    assert "| puts | 7 per second |" in text


def test_another_tool_stands_beside_and_is_bold_where_it_is_too_far_ahead() -> None:
    def beside(ratio: float) -> dict[str, Any]:
        return {"anchor": {"tool": "DuckDB", "value": 0.25, "ratio": ratio, "floor": 0.2}}

    text = made(
        line(
            "data",
            row("count", 0.5, peer=2.0, ratio=4.0, floor=3, goal=6, **beside(0.5)),
            row("join", 2.0, at_most=1, **beside(0.125)),
            row("spilled", 0.0, "MiB", peer=1.0, ratio=None, floor=2, goal=3),
        )
    )
    assert "| operation | here | Ray | ratio | floor | goal | another tool | at most |" in text
    assert "| count | 0.5 s | 2 s | 4 | 3 | 6 | 0.25 s (DuckDB) |  |" in text
    assert "| join | **2 s** |  |  |  |  | **0.25 s (DuckDB)** | 1 |" in text
    assert "| spilled | 0 MiB | 1 MiB |  | 2 | 3 |  |  |" in text


def test_of_several_tools_the_fastest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    comparison = load("comparison")
    seconds = comparison.Metric("count", "s", 3, 6, anchor_floor=0.2)
    rate = comparison.Metric("rows", "rows/s", 3, 6)
    runs = [
        {"count": {"DuckDB": 0.3, "Polars": 1.0}, "rows": {"DuckDB": 5.0, "Polars": 9.0}},
        {"count": {"DuckDB": 0.5, "Polars": 0.1}},
        {"count": {"DuckDB": 0.4, "Polars": 2.0}},
    ]
    found = figures.Figures("data")
    for metric in (seconds, rate):
        comparison.add(found, metric, [{"count": 0.8, "rows": 3.0}], [{"count": 2.0}], runs)
    count, rows = found.rows
    assert (count["ratio"], rows.get("ratio")) == (2.5, None)
    assert count["anchor"] == {"tool": "DuckDB", "value": 0.4, "ratio": 0.5, "floor": 0.2}
    assert rows["anchor"] == {"tool": "Polars", "value": 9.0, "ratio": 0.3333, "floor": None}


def test_negative_figures_have_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    greedy = load("comparison").Metric("greedy return", "return", None, None)
    assert (greedy.ratio(-180.0, -250.0), greedy.ratio(10.0, -5.0)) == (None, None)
    assert greedy.ratio(500.0, 250.0) == 2.0


def test_what_the_processes_use_is_listed() -> None:
    each = {"process": "runtime._node", "cpu_percent": 0.125, "wakes_per_s": 2.5}
    text = made(line("rest", row("CPU", 0.2, "% of a core", processes=[each])))
    assert "| runtime._node | 0.125 | 2.5 |" in text


def test_an_error_is_told() -> None:
    assert "Not everything could be measured: no root" in made(line("hosts", error="no root"))


def test_sections_have_an_order_and_unknown_ones_come_last() -> None:
    text = made(line("new", row("x", 1.0)), line("rest", row("x", 1.0)), line("engine", row("x", 1.0)))
    titles = [found for found in text.splitlines() if found.startswith("## ")]
    assert titles == ["## The engine", "## Cost at rest", "## new"]


def test_a_bar_in_a_name_does_not_break_the_table() -> None:
    assert "| a \\| b | 1 s |" in made(line("new", row("a | b", 1.0)))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.00012345, "0.0001234"), (12.345, "12.35"), (1234.5, "1,234"), (1e6, "1,000,000"), (0, "0")],
)
def test_numbers(value: float, shown: str) -> None:
    assert page._number(value) == shown


def test_a_plain_object_becomes_figures() -> None:
    found = figures.of_plain(
        "hosts", {"raw MiB/s": 1234.56, "at rest": {"cpu_percent": 1.5, "p99_ms": 2}, "x": "y"}
    )
    rows = [(each["name"], each["value"], each["unit"]) for each in found.rows]
    assert rows == [
        ("raw MiB/s", 1235.0, "MiB/s"),
        ("at rest: cpu percent", 1.5, "%"),
        ("at rest: p99 ms", 2, "ms"),
    ]


def test_one_measurement_that_fails_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    found = figures.Figures("x")

    def fails() -> None:
        raise ValueError("no luck")

    status = figures.run(found, {"a": fails, "b": lambda: found.add("good", 1.0, "s")})
    printed = json.loads(capsys.readouterr().out)
    assert status == 1
    assert printed["error"] == "a: ValueError: no luck"
    assert [each["name"] for each in printed["figures"]] == ["good"]


def report(tmp_path: pathlib.Path, *lines: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    given = tmp_path / "lines"
    given.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return subprocess.run(
        [sys.executable, str(BENCH / "report"), str(given), "--out", "-"],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_last_line_of_a_benchmark_counts(tmp_path: pathlib.Path) -> None:
    done = report(tmp_path, line("rest", row("x", 1.0)), line("rest", row("x", 2.0)))
    assert done.returncode == 0, done.stderr
    assert "| x | 2 s |" in done.stdout
    assert "| x | 1 s |" not in done.stdout


def test_nothing_to_report(tmp_path: pathlib.Path) -> None:
    assert report(tmp_path).returncode == 2


def test_an_update_keeps_the_other_sections() -> None:
    lines = {name: line(name, row(f"of {name}", 1.0)) for name in ("engine", "rest", "own")}
    before = page.page(lines)
    assert page.updated(before, lines) == before
    new = {"rest": line("rest", row("news", 2.0)), "autoscaler": line("autoscaler", row("a plan", 3.0))}
    after = page.updated(before, new)
    assert "of engine" in after
    assert "of own" in after
    assert "of rest" not in after
    assert after.index("of engine") < after.index("news") < after.index("a plan") < after.index("of own")
