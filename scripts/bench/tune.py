"""Experiments through the public API, beside Ray Tune, Optuna alone and pools of processes. Prints one line of JSON.

    python scripts/bench/tune.py                              # this engine
    python scripts/bench/tune.py --against OTHER_PYTHON       # and Ray there, Optuna and plain processes
    python scripts/bench/tune.py --only "ASHA"                # some of it
    python scripts/bench/tune.py --scale 0.01                 # with few trials

Needs optuna and scikit-learn, in both environments. Every result is checked.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from comparison import ANCHORS, PER_S, Comparison, Measuring, Metric
from data_measuring import Timing
from store_watch import mark
from tune_anchors import Anchors
from tune_work import sizes
from tune_workloads import MANY, SIMULATED, TABLES, Workloads

METRICS = (
    Metric("import", "s", None, None, "of the module's `tune`", at_most=0.15),
    Metric(
        "an empty trial, cold",
        "s",
        10,
        None,
        "a fresh process: interpreter, imports, `init`, `fit`",
        at_most=1.2,
    ),
    Metric("an empty trial, warm", "s", 25, None),
    Metric("TPE: trials", PER_S, 250, None, "100 trials of Optuna's sampler on a quadratic of two values"),
    Metric("no-op trials", PER_S, 200, None, "1,000, in a fresh process each; the pool reuses its processes"),
    Metric("no-op trials, a fresh process each", PER_S, 200, None, "the same"),
    Metric("ASHA: results", PER_S, 500, None, "200 trials of up to 20 results"),
    Metric("ASHA: trials", PER_S, None, None, "likewise"),
    Metric(
        "four long trials: results", PER_S, 25, None, "250 of each; pipes: a process goes on when told so"
    ),
    Metric("checkpoints of 1 MiB", PER_S, 40, None, "8 trials of 5, two are kept"),
    Metric("PBT", "s", 20, None, "4 members of 20 iterations of 20 ms, synchronous rounds of 5"),
    Metric(TABLES, "s", 1, None, "20 trials with Optuna one by one, 12 with ASHA, a population of 4"),
    Metric(
        "a killed driver: until all is done",
        "s",
        10,
        None,
        "60 trials of 50 ms, of which 30 had finished; from the restart on",
    ),
    Metric(
        "a killed driver: finished trials run again",
        "trials",
        None,
        None,
        "beyond the two that may have ended just then",
        at_most=0,
    ),
    Metric("memory: peak with 2 trials", "MiB", 3, None, "of trials and cluster, without the program"),
    Metric("memory: at rest after the runs", "MiB", 3, None),
    Metric(MANY[0], PER_S, None, None, "10,000, with `reuse_actors`", at_least=300),
    Metric(MANY[1], "ms", None, None, "thousand, for each trial"),
    Metric(MANY[2], "ms", None, None, "thousand, for each trial: no more than of the first"),
    Metric(SIMULATED[0], PER_S, None, None, "100,000 with ASHA on 100 workers, in `tune.simulate`"),
    Metric(SIMULATED[1], "s", None, None, "likewise"),
)

COLD = """
import sys, time, uuid
start = time.perf_counter()
import importlib
module = sys.argv[1]
rt, tune = importlib.import_module(module), importlib.import_module(module + ".tune")
tune.Tuner
print(time.perf_counter() - start, flush=True)
extra = {"include_dashboard": False} if module == "ray" else {}
rt.init(num_cpus=2, log_to_driver=False, logging_level="ERROR", **extra)
def nothing(config):
    pass
tune.Tuner(
    nothing,
    run_config=tune.RunConfig(name=uuid.uuid4().hex, storage_path=sys.argv[2], verbose=0),
).fit()
"""
"""Its end is seen from outside: the program is to have ended by itself."""


def cold(timing: Timing) -> None:
    """In fresh processes."""
    m, names = timing.m, ["import", "an empty trial, cold"]

    def part() -> None:
        found = []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(m.rounds):
                start = time.perf_counter()
                done = subprocess.run(
                    [sys.executable, "-c", COLD, m.module, folder],
                    cwd=Path(__file__).resolve().parents[2],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    check=True,
                )
                whole_s = time.perf_counter() - start
                imports_s = next(float(line) for line in done.stdout.splitlines() if line[:1].isdigit())
                found.append((imports_s, whole_s))
        for name, values in zip(names, zip(*found, strict=True), strict=True):
            m.note(name, statistics.median(values))

    timing.together(names, part)


def measure(m: Measuring, options: argparse.Namespace) -> None:
    """Takes every metric of one engine, or of the anchors."""
    mark()
    timing, found = Timing(m, options.limit), sizes(options.scale)
    if m.module == ANCHORS:
        Anchors(timing, found).run()
        return
    if m.module == "ray":
        os.environ.setdefault(
            "RAY_worker_niceness", "0"
        )  # else its workers yield to all that the machine does
    cold(timing)
    if m.wants(*(metric.name for metric in METRICS[2:])):
        m.guard(Workloads(timing, found, options.budget).run, "cluster")


def main() -> int:
    comparison = Comparison(__file__, __doc__, METRICS, anchors=True)
    add = comparison.parser.add_argument
    add("--limit", type=int, default=200, help="seconds after which a measurement has failed")
    add(
        "--budget",
        type=float,
        default=45.0,
        help="seconds after which TPE, no-op trials and ASHA are stopped",
    )
    add("--scale", type=float, default=1.0, help="of the numbers of trials, results and checkpoints")
    return comparison.run("tune", measure)


if __name__ == "__main__":
    sys.exit(main())
