"""What a benchmark prints: one line of JSON with its figures, what each means and what is aimed at.

    {"benchmark": "scale", "when": "...", "machine": {...}, "load": 0.1, "error": "",
     "figures": [{"name": "...", "value": 1.5, "unit": "s", "meaning": "...", "at_most": 2.0}]}

`scripts/bench/report` makes docs/performance.md of such lines, whichever benchmark they come from.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def progress(text: str) -> None:
    """For whoever watches: stdout is for the line alone."""
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """On what the figures were measured."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith(("model name", "Model"))
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


class Figures:
    """The figures of one benchmark, in order."""

    def __init__(self, benchmark: str) -> None:
        self.benchmark = benchmark
        self.error = ""
        self.load = round(os.getloadavg()[0], 1)
        self.rows: list[dict[str, Any]] = []

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        meaning: str = "",
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        **more: Any,
    ) -> None:
        """One figure. `at_most` or `at_least` is the goal; `more` goes into the line as it is."""
        row: dict[str, Any] = {"name": name, "value": rounded(value), "unit": unit, "meaning": meaning}
        if at_most is not None:
            row["at_most"] = at_most
        if at_least is not None:
            row["at_least"] = at_least
        self.rows.append({**row, **more})
        progress(f"{self.benchmark}: {name}: {row['value']} {unit}")

    def line(self) -> str:
        """All of it as JSON."""
        return json.dumps(
            {
                "benchmark": self.benchmark,
                "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "machine": machine(),
                "load": self.load,
                "error": self.error,
                "figures": self.rows,
            }
        )


def rounded(value: float) -> float:
    """Four digits are more than any of these measurements has."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def run(figures: Figures, measurements: dict[str, Callable[[], None]], only: str = "") -> int:
    """Takes the measurements whose name contains `only`, prints the line, and returns the exit status.

    One that fails does not stop those after it: the line tells of it.
    """
    errors = []
    for name, measure in measurements.items():
        if only not in name:
            continue
        progress(f"{figures.benchmark}: {name} ...")
        try:
            measure()
        except Exception as error:
            errors.append(f"{name}: {type(error).__name__}: {error}")
            progress(f"{figures.benchmark}: {errors[-1]}")
    figures.error = "; ".join(errors)
    print(figures.line(), flush=True)
    return 1 if errors else 0


_UNITS = {"seconds": "s", "percent": "%", "ms": "ms", "mib": "MiB", "MiB/s": "MiB/s"}


def of_plain(benchmark: str, results: dict[str, Any]) -> Figures:
    """The figures of a benchmark that prints an object of numbers, perhaps in objects; its units are in its names."""
    figures = Figures(benchmark)
    _flatten(figures, (), results)
    return figures


def _flatten(figures: Figures, path: tuple[str, ...], results: dict[str, Any]) -> None:
    for key, value in results.items():
        if isinstance(value, dict):
            _flatten(figures, (*path, key), value)
        elif isinstance(value, int | float):
            words = key.replace("_", " ").split()
            unit = next((_UNITS[word] for word in words if word in _UNITS), "")
            figures.rows.append(
                {
                    "name": ": ".join((*path, " ".join(words))),
                    "value": rounded(value),
                    "unit": unit,
                    "meaning": "",
                }
            )
