"""How long rehearsals take (`clusterctl simulate`): `python scripts/bench/rehearsal.py [--only NAME]`. Prints one
line of JSON.

CPU time of the whole rehearsal: the world and all decisions of the autoscaler in it. "Equal" tasks last the same,
"drawn" ones end one by one, and every end is a moment of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from figures import ROOT, Figures, run

from autoscaler.config import AutoscalerConfig
from autoscaler.provider import NodeType
from autoscaler.rehearsal.rehearse import rehearse
from autoscaler.rehearsal.trace import Tasks, Trace, load
from clusterctl.launcher.node_types import autoscaler_config
from clusterctl.spec.load import load_file

CASES = {
    "10000 equal tasks, 100 nodes": (10_000, 100, 60.0),
    "10000 drawn tasks, 100 nodes": (10_000, 100, [30.0, 90.0]),
    "100000 drawn tasks, 1000 nodes": (100_000, 1000, [30.0, 90.0]),
}


def burst(figures: Figures, name: str, tasks: int, nodes: int, lasts_s: float | list[float]) -> None:
    """All tasks at once, on nodes of 8 CPUs."""
    kinds = (NodeType("head", {"CPU": 1}), NodeType("worker", {"CPU": 8}, max_workers=nodes))
    config = AutoscalerConfig("bench", "bench", kinds, "head", nodes, upscaling_speed=10.0)
    measured(figures, name, config, Trace(tasks=[Tasks(count=tasks, duration_s=lasts_s)]))


def day(figures: Figures) -> None:
    """The example that comes with the project."""
    folder = ROOT / "examples" / "simulate"
    config = autoscaler_config(load_file(str(folder / "cluster.yaml")), "bench", {}, "")
    measured(figures, "examples/simulate", config, load(folder / "day.json"))


def measured(figures: Figures, name: str, config: AutoscalerConfig, trace: Trace) -> None:
    began = time.process_time()
    summary = rehearse(config, trace).summary
    spent = time.process_time() - began
    what = f"CPU time to rehearse {summary.end_s / 3600:.1f} h with {summary.tally.decisions} decisions"
    figures.add(name, spent, "s", what, decisions=summary.tally.decisions)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="the cases whose name contains this")
    options = parser.parse_args()
    figures = Figures("rehearsal")
    cases = {name: partial(burst, figures, name, *case) for name, case in CASES.items()}
    return run(figures, {**cases, "examples/simulate": partial(day, figures)}, options.only)


if __name__ == "__main__":
    sys.exit(main())
