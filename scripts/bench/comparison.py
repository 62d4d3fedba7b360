"""What benchmarks share that measure any engine with Ray's API, and compare this one to Ray in its own environment.

The other engine is measured by the same script under another Python, run by run in turn. Ratios are medians of the
runs; above 1 this engine is ahead.
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


@dataclass(frozen=True)
class Metric:
    """What is measured, and how far ahead of Ray it is to be: at least `floor` times, better `goal` times."""

    name: str
    unit: str
    floor: float
    goal: float
    meaning: str


class Measuring:
    """One engine; what was found so far.

    Args:
        benchmark: its name.
        metrics: all that it measures.
        module: has Ray's API.
        only: measures the metrics whose name contains this.
        round_s, rounds: how long and how often each rate is taken.
    """

    def __init__(
        self, benchmark: str, metrics: Sequence[Metric], module: str, only: str, round_s: float, rounds: int
    ) -> None:
        self.benchmark = benchmark
        self.module = module
        self.ray: Any = importlib.import_module(module)
        self.util: Any = importlib.import_module(f"{module}.util")
        self.only = only
        self.round_s = round_s
        self.rounds = rounds
        self.found: dict[str, float] = {}
        self.errors: list[str] = []
        self._metrics = {metric.name: metric for metric in metrics}

    def init(self, cpus: int) -> None:
        """Starts a local cluster."""
        extra = {"include_dashboard": False} if self.module == "ray" else {}
        self.ray.init(num_cpus=cpus, log_to_driver=False, logging_level="ERROR", **extra)

    def wants(self, *names: str) -> bool:
        """Whether any of these is to be measured."""
        return any(self.only in self._metrics[name].name for name in names)

    def note(self, name: str, value: float) -> None:
        """Takes a figure, if it is wanted."""
        metric = self._metrics[name]
        if not self.wants(name):
            return
        self.found[name] = value
        progress(f"{self.benchmark}: {name}: {rounded(value)} {metric.unit}")

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
    """

    def __init__(self, script: str, doc: str | None, metrics: Sequence[Metric]) -> None:
        self._script = script
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
        if options.against:
            for turn in range(options.runs):
                progress(f"{benchmark}: run {turn + 1} of {options.runs}")
                other.append(self._of_another(benchmark, options.against, options.module or "ray", options))
                own.append(self._of_another(benchmark, sys.executable, "runtime", options))
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
        figures.error = "; ".join(self._errors)
        for metric in self._metrics:
            add(figures, metric, own, other)
        if not figures.rows and not figures.error:
            figures.error = "nothing was measured"
        print(figures.line(), flush=True)
        return 1 if figures.error else 0

    def _of_another(
        self, benchmark: str, python: str, module: str, options: argparse.Namespace
    ) -> dict[str, float]:
        """What the script finds elsewhere."""
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
        return {row["name"]: row["value"] for row in found["figures"]}


def add(figures: Figures, metric: Metric, own: list[dict[str, float]], other: list[dict[str, float]]) -> None:
    """One figure, with the peer's and the ratio where there is one."""
    ours = [found[metric.name] for found in own if metric.name in found]
    theirs = [found[metric.name] for found in other if metric.name in found]
    if not ours:
        return
    more: dict[str, float] = {}
    if theirs:
        value, peer = statistics.median(ours), statistics.median(theirs)
        ratio = peer / value if metric.unit in LOWER_IS_BETTER else value / peer
        more = {"peer": rounded(peer), "ratio": rounded(ratio), "floor": metric.floor, "goal": metric.goal}
    figures.add(metric.name, statistics.median(ours), metric.unit, metric.meaning, **more)
