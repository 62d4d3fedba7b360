"""What benchmarks share that measure any engine with Ray's API, and compare this one to Ray in its own environment.

The other engine is measured by the same script under another Python, run by run in turn. Ratios are medians of the
runs; above 1 this engine is ahead. A benchmark may also measure other tools that do the same, its anchors: the fastest
of those that are installed stands beside the two.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from figures import Figures, progress, rounded

WARM_UP_S = 0.3
RUN_TIMEOUT_S = 1800.0
PER_S = "per second"
LOWER_IS_BETTER = ("s", "ms", "us", "MiB")
ANCHORS = "anchors"
"""In the place of a module's name: the other tools."""


@dataclass(frozen=True)
class Metric:
    """What is measured, and how far ahead of Ray it is to be: at least `floor` times, better `goal` times.

    `at_most` and `at_least` are limits for the figure itself, `anchor_floor` the least multiple of the speed of the
    fastest anchor.
    """

    name: str
    unit: str
    floor: float | None
    goal: float | None
    meaning: str = ""
    at_most: float | None = None
    anchor_floor: float | None = None
    at_least: float | None = None

    def ratio(self, value: float, other: float) -> float | None:
        """How many times better a value is than another; None if that has no meaning, as with a negative return."""
        if value < 0 or other < 0:
            return None
        better, worse = (other, value) if self.unit in LOWER_IS_BETTER else (value, other)
        return rounded(better / worse) if worse else None


class Measuring:
    """One engine; what was found so far.

    Args:
        benchmark: its name.
        metrics: all that it measures.
        module: has Ray's API; or `ANCHORS`.
        only: measures the metrics whose name contains this.
        round_s, rounds: how long and how often each rate is taken.
    """

    def __init__(
        self, benchmark: str, metrics: Sequence[Metric], module: str, only: str, round_s: float, rounds: int
    ) -> None:
        self.benchmark = benchmark
        self.module = module
        if module != ANCHORS:
            self.ray: Any = importlib.import_module(module)
            self.util: Any = importlib.import_module(f"{module}.util")
        self.only = only
        self.round_s = round_s
        self.rounds = rounds
        self.found: dict[str, float] = {}
        self.tools: dict[str, dict[str, float]] = {}  # of anchors: what each tool gave, by metric
        self.errors: list[str] = []
        self._metrics = {metric.name: metric for metric in metrics}

    def init(self, cpus: int, **options: Any) -> None:
        """Starts a local cluster."""
        if self.module == "ray":
            options["include_dashboard"] = False
        self.ray.init(num_cpus=cpus, log_to_driver=False, logging_level="ERROR", **options)

    def wants(self, *names: str) -> bool:
        """Whether any of these is to be measured."""
        return any(self.only in self._metrics[name].name for name in names)

    def note(self, name: str, value: float, tool: str = "") -> None:
        """Takes a figure, if it is wanted; of anchors the best one counts."""
        metric = self._metrics[name]
        if not self.wants(name):
            return
        if tool:
            tools = self.tools.setdefault(name, {})
            tools[tool] = rounded(value)
            self.found[name] = _best(metric, tools)[1]
        else:
            self.found[name] = value
        progress(f"{self.benchmark}: {name}: {rounded(value)} {metric.unit} {tool}".rstrip())

    def guard(self, part: Callable[[], None], what: str = "") -> None:
        """Runs a part. A failure is noted; the others are measured all the same."""
        try:
            part()
        except Exception as error:
            self.errors.append(f"{what or part.__name__}: {type(error).__name__}: {error}")
            progress(f"{self.benchmark}: {self.errors[-1]}")

    def measure(self, name: str, take: Callable[[], float]) -> None:
        """Takes what `take` returns, if it is wanted."""
        if self.wants(name):
            self.guard(lambda: self.note(name, take()), name)

    def rate(self, name: str, operation: Callable[[], Any], count: float = 1) -> None:
        """Takes the rate of an operation that does `count` of what the metric counts."""
        self.measure(name, lambda: self.rate_of(operation, count))

    def rate_of(self, operation: Callable[[], Any], count: float = 1) -> float:
        """How often per second, times `count`: the median of the rounds."""
        end = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < end:
            operation()
        return statistics.median(self._round(operation, count) for _ in range(self.rounds))

    def _round(self, operation: Callable[[], Any], count: float) -> float:
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < self.round_s:
            operation()
            done += 1
        return done * count / (time.perf_counter() - start)


class Comparison:
    """The command of such a benchmark.

    Args:
        script: its file.
        doc: what it says of itself.
        metrics: what it measures, in the order of the figures.
        anchors: whether there are any.
    """

    def __init__(
        self, script: str, doc: str | None, metrics: Sequence[Metric], anchors: bool = False
    ) -> None:
        self._script = script
        self._anchors = anchors
        self._errors: dict[str, None] = {}  # what could not be measured, by either
        self._metrics = metrics
        self.parser = argparse.ArgumentParser(
            description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        add = self.parser.add_argument
        add("--module", default="", help="what to measure (default: runtime; with --against: ray)")
        add("--against", metavar="PYTHON", help="compare with MODULE in the environment of this Python")
        add("--runs", type=int, default=3, help="with --against: of each, in turn")
        add("--only", default="", help="the metrics whose name contains this")
        add("--rounds", type=int, default=3)
        add("--seconds", type=float, default=1.0, help="of each round")

    def run(self, benchmark: str, measure: Callable[[Measuring, argparse.Namespace], None]) -> int:
        """Measures one engine, or two by turns; prints the line, and returns the exit status."""
        options = self.parser.parse_args()
        figures = Figures(benchmark)
        own: list[dict[str, float]] = []
        other: list[dict[str, float]] = []
        anchors: list[dict[str, dict[str, float]]] = []
        if options.against:
            for turn in range(options.runs):
                progress(f"{benchmark}: run {turn + 1} of {options.runs}")
                other.append(
                    _values(self._rows(benchmark, options.against, options.module or "ray", options))
                )
                own.append(_values(self._rows(benchmark, sys.executable, "runtime", options)))
                if self._anchors:
                    rows = self._rows(benchmark, sys.executable, ANCHORS, options)
                    anchors.append({row["name"]: row["tools"] for row in rows})
        else:
            measuring = Measuring(
                benchmark,
                self._metrics,
                options.module or "runtime",
                options.only,
                options.seconds,
                options.rounds,
            )
            measuring.guard(lambda: measure(measuring, options), benchmark)
            self._errors = dict.fromkeys(measuring.errors)
            own.append(measuring.found)
            anchors.append(measuring.tools)
        figures.error = "; ".join(self._errors)
        for metric in self._metrics:
            add(figures, metric, own, other, anchors)
        if not figures.rows and not figures.error:
            figures.error = "nothing was measured"
        print(figures.line(), flush=True)
        return 1 if figures.error else 0

    def _rows(
        self, benchmark: str, python: str, module: str, options: argparse.Namespace
    ) -> list[dict[str, Any]]:
        """The figures that the script finds elsewhere."""
        command = [python, self._script, "--module", module]
        for name, value in vars(options).items():
            if name not in ("module", "against", "runs"):
                command += [f"--{name}", str(value)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=RUN_TIMEOUT_S)
        if not done.stdout:
            raise RuntimeError(f"{python} measured nothing of {module}: status {done.returncode}")
        found = json.loads(done.stdout.splitlines()[-1])
        if found["error"]:
            self._errors[f"{module}: {found['error']}"] = None
        rows: list[dict[str, Any]] = found["figures"]
        return rows


def add(
    figures: Figures,
    metric: Metric,
    own: list[dict[str, float]],
    other: list[dict[str, float]],
    anchors: Sequence[dict[str, dict[str, float]]] = (),
) -> None:
    """One figure, with the peer's and the ratio where there is one, and the fastest anchor's."""
    ours = [found[metric.name] for found in own if metric.name in found]
    theirs = [found[metric.name] for found in other if metric.name in found]
    if not ours:
        return
    more: dict[str, Any] = {}
    value = statistics.median(ours)
    if theirs:
        peer = statistics.median(theirs)
        ratio = metric.ratio(value, peer)
        more = {"peer": rounded(peer), "ratio": ratio, "floor": metric.floor, "goal": metric.goal}
    if tools := _medians([found[metric.name] for found in anchors if metric.name in found]):
        tool, best = _best(metric, tools)
        more["tools"] = tools
        more["anchor"] = {
            "tool": tool,
            "value": best,
            "ratio": metric.ratio(value, best),
            "floor": metric.anchor_floor,
        }
    limits = {"at_most": metric.at_most, "at_least": metric.at_least}
    figures.add(metric.name, value, metric.unit, metric.meaning, **limits, **more)


def _values(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {row["name"]: row["value"] for row in rows}


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """By tool."""
    return {
        tool: rounded(statistics.median(run[tool] for run in runs if tool in run))
        for tool in dict.fromkeys(tool for run in runs for tool in run)
    }


def _best(metric: Metric, tools: dict[str, float]) -> tuple[str, float]:
    """The tool that does best, and its figure."""
    best = min if metric.unit in LOWER_IS_BETTER else max
    tool = best(tools, key=lambda each: tools[each])
    return tool, tools[tool]
