"""Training through the public API, beside Ray Train and torchrun. Prints one line of JSON.

    python scripts/bench/train.py                              # this engine
    python scripts/bench/train.py --against OTHER_PYTHON       # and Ray there, and torchrun and plain torch
    python scripts/bench/train.py --only "killed"              # some of it

Needs torch, in both environments. Every result is checked: the trained weights against those of one process alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from comparison import ANCHORS, PER_S, Comparison, Measuring, Metric
from data_measuring import Timing
from store_watch import mark
from train_anchors import Anchors
from train_workloads import WORKERS, Workloads

STEPS = "steps"
METRICS = (
    Metric("import", "s", None, None, "of the module's `train`", at_most=0.15),
    Metric("empty fit, 1 worker, cold", "s", 5, 10, "a fresh process: imports, `init`, `fit`"),
    Metric("empty fit, 2 workers, cold", "s", 5, 10, "likewise"),
    Metric("empty fit, 1 worker", "s", 20, 40),
    Metric("empty fit, 2 workers", "s", 20, 40),
    Metric("DDP: fit", "s", 2.5, 5, "1,437 rows of 64 features, 60 epochs, by 2 workers"),
    Metric("DDP: loop", "s", 1, None, "of its training function", anchor_floor=1),
    Metric(
        "DDP: a step", "ms", 1, None, "1,320 of them, batches of 64, two hidden layers of 256", anchor_floor=1
    ),
    Metric(
        "reports, 1 worker",
        PER_S,
        1000,
        4000,
        "without checkpoints; torchrun: a barrier and a line in a log",
        at_least=2000,
    ),
    Metric("reports, 2 workers", PER_S, 1000, 4000, "likewise", at_least=2000),
    Metric(
        "checkpoints: stall",
        "s",
        1,
        2,
        "128 MiB each, 1 s of other work between them: `torch.save`, `report`",
    ),
    Metric("checkpoints: fit", "s", 3.5, 5, "three of them, two are kept"),
    Metric("asynchronous checkpoints: stall", "s", 1, 2, "likewise, uploaded in the background", at_most=0.1),
    Metric("asynchronous checkpoints: fit", "s", 3.5, 5),
    Metric("a worker killed at once after its report: next step", "s", 6, 10, "of 2 workers", at_most=1.3),
    Metric(
        "a worker killed at once after its report: repeated", STEPS, None, None, "that were saved", at_most=0
    ),
    Metric("a worker killed 5 s after its report: next step", "s", 6, 10, "of 2 workers", at_most=1.3),
    Metric("a worker killed 5 s after its report: repeated", STEPS, None, None, "that were saved", at_most=0),
    Metric("data shards, first epoch", "rows/s", 3, 6, "200,000 rows of 128 float32, 2 workers"),
    Metric("data shards, second epoch", "rows/s", 1.5, 3),
    Metric(
        "memory: peak with 2 workers", "MiB", 4, 8, "of workers, cluster and controller, without the program"
    ),
    Metric("memory: at rest after the runs", "MiB", 4, 8),
)

COLD = """
import sys, time, uuid
start = time.perf_counter()
import importlib
module = sys.argv[1]
rt, train = importlib.import_module(module), importlib.import_module(module + ".train")
print(time.perf_counter() - start, flush=True)
trainers = importlib.import_module(module + ".train.torch")
extra = {"include_dashboard": False} if module == "ray" else {}
rt.init(num_cpus=2, log_to_driver=False, logging_level="ERROR", **extra)
def nothing(config):
    pass
trainers.TorchTrainer(
    nothing,
    scaling_config=train.ScalingConfig(num_workers=int(sys.argv[2])),
    run_config=train.RunConfig(name=uuid.uuid4().hex, storage_path=sys.argv[3]),
).fit()
print(time.perf_counter() - start, flush=True)
"""


def cold(timing: Timing) -> None:
    """In fresh processes."""
    m = timing.m
    for workers, label in WORKERS.items():
        names = ["import", f"empty fit, {label}, cold"]

        def part(workers: int = workers, names: list[str] = names) -> None:
            found = []
            with tempfile.TemporaryDirectory() as folder:
                for _ in range(m.rounds):
                    done = subprocess.run(
                        [sys.executable, "-c", COLD, m.module, str(workers), folder],
                        cwd=Path(__file__).resolve().parents[2],
                        stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL,
                        text=True,
                        check=True,
                    )
                    found.append([float(line) for line in done.stdout.splitlines() if line[:1].isdigit()])
            for name, values in zip(names, zip(*found, strict=True), strict=True):
                m.note(name, statistics.median(values))

        timing.together(names, part)


def measure(m: Measuring, options: argparse.Namespace) -> None:
    """Takes every metric of one engine, or of the anchors."""
    mark()
    timing = Timing(m, options.limit)
    if m.module == ANCHORS:
        Anchors(timing).run()
        return
    if m.module == "ray":
        os.environ.setdefault(
            "RAY_worker_niceness", "0"
        )  # else its workers yield to all that the machine does
    cold(timing)
    warm = [metric.name for metric in METRICS if metric.name != "import" and "cold" not in metric.name]
    if m.wants(*warm):
        m.guard(Workloads(timing, options.seconds).run, "cluster")


def main() -> int:
    comparison = Comparison(__file__, __doc__, METRICS, anchors=True)
    comparison.parser.add_argument(
        "--limit", type=int, default=200, help="seconds after which a measurement has failed"
    )
    return comparison.run("train", measure)


if __name__ == "__main__":
    sys.exit(main())
