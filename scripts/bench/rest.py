"""What a cluster with nothing to do costs: `python scripts/bench/rest.py [--only NAME]`. Prints one line of JSON.

Measurements: local (init() and a driver that waits), launched (a head and workers brought up by `clusterctl up`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from figures import ROOT, Figures, progress, run
from processes import all_pids, counters, title, used_between, with_descendants

import runtime as ray

COMMAND_TIMEOUT_S = 120.0
CPU_GOAL_PERCENT = 1.0
WAKES_GOAL = 5.0
SPEC = """\
cluster_name: rest
provider: {{type: local}}
max_workers: {workers}
head_node_type: head
available_node_types:
  head:
    resources: {{CPU: 1}}
  worker:
    resources: {{CPU: 1}}
    min_workers: {workers}
    max_workers: {workers}
"""


@ray.remote
def nothing() -> None:
    """No work."""


def settle(seconds: float) -> None:
    """What was started comes to rest: idle workers end, reports are sent."""
    progress(f"rest: settling for {seconds:g} s")
    time.sleep(seconds)


def observe(figures: Figures, what: str, pids: list[int], seconds: float) -> None:
    """Adds what these processes use in `seconds`, one by one and in all."""
    before = {pid: counters(pid) for pid in pids}
    start = time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - start
    alive = set(all_pids())
    uses = {pid: used_between(before[pid], counters(pid)) for pid in pids if pid in alive}
    parts = [
        {
            "process": title(pid),
            "cpu_percent": round(100 * use.cpu_s / elapsed, 3),
            "wakes_per_s": round(use.wakes / elapsed, 2),
        }
        for pid, use in uses.items()
    ]
    for part in parts:
        progress(f"rest: {what}: {part['process']}: {part['cpu_percent']} %, {part['wakes_per_s']} wakes/s")
    figures.add(
        f"{what}: CPU of all {len(parts)} processes",
        100 * sum(use.cpu_s for use in uses.values()) / elapsed,
        "% of a core",
        f"over {seconds:g} s",
        at_most=CPU_GOAL_PERCENT,
        processes=parts,
    )
    figures.add(
        f"{what}: wakes of the process that wakes most",
        max(use.wakes for use in uses.values()) / elapsed,
        "per second",
        "context switches of all its threads",
        at_most=WAKES_GOAL,
    )
    figures.add(
        f"{what}: wakes of all processes", sum(use.wakes for use in uses.values()) / elapsed, "per second"
    )


def local(figures: Figures, settle_s: float, seconds: float) -> None:
    """A cluster of `init()`, after a few tasks."""
    ray.init(num_cpus=2, log_to_driver=False, logging_level="ERROR")
    try:
        ray.get([nothing.remote() for _ in range(10)])
        settle(settle_s)
        observe(figures, "init()", with_descendants(os.getpid()), seconds)
    finally:
        ray.shutdown()


def launched(figures: Figures, workers: int, settle_s: float, seconds: float) -> None:
    """A head and its workers, without any driver."""
    with tempfile.TemporaryDirectory(prefix="rest-") as folder:
        spec = Path(folder, "rest.yaml")
        spec.write_text(SPEC.format(workers=workers))
        # A world of its own: nothing of the user's clusters is read or changed.
        world = {
            **os.environ,
            "CLUSTERCTL_HOME": os.path.join(folder, "h"),
            "CLUSTERCTL_TMPDIR": os.path.join(folder, "t"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        os.mkdir(world["CLUSTERCTL_HOME"])
        os.mkdir(world["CLUSTERCTL_TMPDIR"])
        try:
            clusterctl("up", "--yes", str(spec), world=world)
            settle(settle_s)
            observe(figures, f"head and {workers} workers", of_world(folder), seconds)
        finally:
            clusterctl("down", "--yes", str(spec), world=world)


def clusterctl(*arguments: str, world: dict[str, str]) -> None:
    """Runs a command; RuntimeError with what it said when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "clusterctl", *arguments],
        env=world,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    if done.returncode:
        raise RuntimeError(f"clusterctl {arguments[0]} ended with {done.returncode}: {done.stderr[-500:]}")


def of_world(folder: str) -> list[int]:
    """The processes whose environment names this folder, and those that came of them."""
    found = {}
    for pid in all_pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue  # it has ended, or is not ours
        if b"CLUSTERCTL_TMPDIR=" + folder.encode() in environment:
            found.update(dict.fromkeys(with_descendants(pid)))
    if not found:
        raise RuntimeError("no process of the cluster was found")
    return list(found)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="the measurements whose name contains this")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to look")
    parser.add_argument("--settle", type=float, default=10.0, help="how long to wait before that")
    parser.add_argument("--workers", type=int, default=2, help="nodes besides the head")
    options = parser.parse_args()
    figures = Figures("rest")
    return run(
        figures,
        {
            "local": lambda: local(figures, options.settle, options.seconds),
            "launched": lambda: launched(figures, options.workers, options.settle, options.seconds),
        },
        options.only,
    )


if __name__ == "__main__":
    sys.exit(main())
