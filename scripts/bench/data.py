"""Data sets through the public API, beside Ray Data and other tools. Prints one line of JSON.

    python scripts/bench/data.py                              # this engine
    python scripts/bench/data.py --against OTHER_PYTHON       # and Ray there, and DuckDB, Polars, torch's DataLoader,
                                                              # pyarrow, a pool of processes, as far as installed here
    python scripts/bench/data.py --only "TPC-H"               # some of it
    python scripts/bench/data.py --scale 0.01                 # less input

Every result is checked. The input, 1 GB of files, is made in --folder once; TPC-H by tpchgen-cli where it is installed.
What needs torch or scikit-learn is left out where they are missing.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from comparison import ANCHORS, Comparison, Measuring, Metric
from data_anchors import Anchors
from data_input import Inputs
from data_measuring import Timing
from data_workloads import Workloads
from store_watch import mark

FIFTH = 0.2
GIB_PER_S = "GiB/s"
METRICS = (
    Metric("import", "s", 5, 20, "of the module and its `data`", at_most=0.15),
    Metric("cold start", "s", 8, 16, "import, `init`, 1,000 rows through a function", at_most=1),
    Metric("group-by of 1 M rows, one key", "s", 5, 20, "a sum", anchor_floor=FIFTH),
    Metric("group-by of 1 M rows, a million keys", "s", 15, 50, "a sum", anchor_floor=FIFTH),
    Metric("TPC-H Q1", "s", 25, 100, "scale 0.2", anchor_floor=FIFTH),
    Metric("TPC-H Q3", "s", None, None, "scale 0.2", at_most=1, anchor_floor=FIFTH),
    Metric("TPC-H Q6", "s", 50, 100, "scale 0.2", anchor_floor=FIFTH),
    Metric("count of Parquet", "s", 8, 50, "1.2 M rows", anchor_floor=FIFTH),
    Metric("take(5) of Parquet", "s", 20, 100, "", anchor_floor=FIFTH),
    Metric("iter_batches", "rows/s", 4, 8, "256 rows of 784 float32"),
    Metric("iter_torch_batches", "rows/s", 4, 8, "likewise"),
    Metric("iter_torch_batches, local shuffle", "rows/s", 2, 4, "of 10,000 rows; the DataLoader's of all"),
    Metric("iter_batches of Parquet", "rows/s", 4, 8, "4,096 rows of 4 columns"),
    Metric("2,000 text files: first batch", "s", 6, 12, "20 lines each"),
    Metric("2,000 text files: all", "s", 3, 6),
    Metric("2,000 CSV files: first batch", "s", 10, 20, "50 rows each"),
    Metric("2,000 CSV files: all", "s", 2.8, 6, "", anchor_floor=FIFTH),
    Metric("5,000 JPEG images", "images/s", 1, 3, "64 x 64, decoded and added up", anchor_floor=FIFTH),
    Metric("map of rows", "rows/s", 3.2, 6, "100,000 rows", anchor_floor=0.8),
    Metric("flat_map of rows", "rows/s", 3.2, 6, "three rows of each", anchor_floor=0.8),
    Metric("filter of rows by a function", "rows/s", 3.2, 6, "half of them", anchor_floor=0.8),
    Metric("write_parquet", "rows/s", 1.5, 3, "2 M rows of 4 columns", anchor_floor=FIFTH),
    Metric("map_batches of 64 blocks", "s", 3.5, 7, "10 ms each"),
    Metric("map_batches of 64 blocks, a worker killed", "s", 5, 10),
    Metric(
        "tensors", GIB_PER_S, 6, 12, "2 GiB through three functions and an actor, with a budget of 512 MiB"
    ),
    Metric("tensors: peak store", "MiB", None, None, "budget, and 16 MiB for each of 3 tasks", at_most=560),
    Metric("tensors: written to disk", "MiB", None, None, "", at_most=1),
    Metric("slow consumer", "s", None, None, "of 192 blocks of 8 MiB, 20 ms each"),
    Metric("slow consumer: peak store", "MiB", None, None, "", at_most=160),
    Metric("slow consumer: written to disk", "MiB", None, None, "", at_most=1),
    Metric("sort of 512 MiB", GIB_PER_S, 3.5, 7, "in a store of 256 MiB", anchor_floor=FIFTH),
    Metric("sort of 512 MiB: peak store", "MiB", None, None, "", at_most=256),
    Metric("sort of 512 MiB: written to disk", "MiB", 2, 3),
    Metric("random_shuffle of 512 MiB", GIB_PER_S, 5, 10, "in a store of 256 MiB", anchor_floor=FIFTH),
    Metric("random_shuffle of 512 MiB: peak store", "MiB", None, None, "", at_most=256),
    Metric("random_shuffle of 512 MiB: written to disk", "MiB", 2, 3),
)
PARTS = {
    "group_by": ("group-by",),
    "parquet": ("TPC-H", "count", "take"),
    "batches": ("iter_",),
    "batches_of_parquet": ("iter_batches of Parquet",),
    "small_files": ("2,000",),
    "images": ("5,000",),
    "row_wise": ("map of", "flat_map", "filter"),
    "write": ("write",),
    "killed": ("map_batches",),
    "tensors": ("tensors",),
    "slow_consumer": ("slow consumer",),
    "sort": ("sort",),
    "shuffle": ("random_shuffle",),
}
"""Methods of `Workloads` and `Anchors`, and how the names of their metrics begin."""
STORES_MIB = {"tensors": 2048, "slow_consumer": 1024, "sort": 256, "shuffle": 256}
"""Of the parts that have a cluster of their own, so that a peak is of them alone; the others share one."""
SHARED_STORE_MIB = 4096

COLD = """
import sys, time
start = time.perf_counter()
import importlib
rt, data = importlib.import_module(sys.argv[1]), importlib.import_module(sys.argv[1] + ".data")
print(time.perf_counter() - start, flush=True)
extra = {"include_dashboard": False} if sys.argv[1] == "ray" else {}
rt.init(num_cpus=2, log_to_driver=False, logging_level="ERROR", **extra)
rows = data.range(1000).map_batches(lambda batch: {"id": batch["id"] * 2}).take_all()
assert sorted(row["id"] for row in rows) == list(range(0, 2000, 2)), rows[:5]
print(time.perf_counter() - start, flush=True)
"""
COLD_POOL = """
import time
start = time.perf_counter()
import multiprocessing, numpy, pyarrow
print(time.perf_counter() - start, flush=True)
def double(ids):
    return ids * 2
with multiprocessing.Pool(2) as pool:
    parts = pool.map(double, numpy.array_split(numpy.arange(1000), 16))
rows = [{"id": int(n)} for part in parts for n in part]
assert sorted(row["id"] for row in rows) == list(range(0, 2000, 2)), rows[:5]
print(time.perf_counter() - start, flush=True)
"""


def cold_start(timing: Timing) -> None:
    """In fresh processes."""
    m = timing.m
    code, tool = (COLD_POOL, "a pool of processes") if m.module == ANCHORS else (COLD, "")

    def part() -> None:
        found = []
        for _ in range(m.rounds):
            done = subprocess.run(
                [sys.executable, "-c", code, m.module],
                cwd=Path(__file__).resolve().parents[2],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
            )
            found.append([float(line) for line in done.stdout.splitlines() if line[:1].isdigit()])
        for name, values in zip(("import", "cold start"), zip(*found, strict=True), strict=True):
            m.note(name, statistics.median(values), tool)

    timing.together(["import", "cold start"], part, tool)


def measure(m: Measuring, options: argparse.Namespace) -> None:
    """Takes every metric of one engine, or of the anchors."""
    mark()
    options.folder.mkdir(parents=True, exist_ok=True)
    timing, inputs = Timing(m, options.limit), Inputs(options.folder, options.scale)
    cold_start(timing)
    parts = [part for part, begins in PARTS.items() if m.wants(*_metrics(begins))]
    if m.module == ANCHORS:
        anchors = Anchors(timing, inputs)
        for part in parts:
            m.guard(getattr(anchors, part))
        return
    workloads = Workloads(timing, inputs)
    groups = [
        [part for part in parts if part not in STORES_MIB],
        *([part] for part in parts if part in STORES_MIB),
    ]
    for group in filter(None, groups):
        store_mib = STORES_MIB.get(group[0], SHARED_STORE_MIB)
        m.guard(functools.partial(workloads.run, group, store_mib), ", ".join(group))


def _metrics(begins: tuple[str, ...]) -> list[str]:
    return [metric.name for metric in METRICS if metric.name.startswith(begins)]


def main() -> int:
    comparison = Comparison(__file__, __doc__, METRICS, anchors=True)
    add = comparison.parser.add_argument
    default = Path(tempfile.gettempdir()) / "bench-data-input"
    add("--folder", type=Path, default=default, help=f"for the input (default: {default})")
    add("--scale", type=float, default=1.0, help="multiplies the rows and files of the input")
    add("--limit", type=int, default=90, help="seconds after which a measurement has failed")
    return comparison.run("data", measure)


if __name__ == "__main__":
    sys.exit(main())
