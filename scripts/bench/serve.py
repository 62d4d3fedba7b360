"""Applications through the public API, beside Ray Serve and uvicorn. Prints one line of JSON.

    python scripts/bench/serve.py                              # this engine
    python scripts/bench/serve.py --against OTHER_PYTHON       # and Ray there, and uvicorn with Starlette and FastAPI
    python scripts/bench/serve.py --only "no-op"               # some of it

Needs fastapi, numpy, scikit-learn, starlette and uvicorn, in both environments; aiohttp for the anchors. Every answer
is checked. Load comes from a process of its own (serve_client.py).
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

import serve_engine as engine
import serve_workloads as workloads
from comparison import ANCHORS, PER_S, Comparison, Measuring, Metric
from data_measuring import Timing
from serve_anchors import Uvicorn, generator_limit
from serve_load import free_port
from store_watch import mark

OURS = "runtime"
REQUESTS = "requests"
LIMIT = "the load generator's limit"
METRICS = (
    Metric("import", "s", None, None, "of the module's `serve`", at_most=0.15),
    Metric(engine.START[0], "s", 8, None, "`init`, `serve.start`, an application, an answer over HTTP"),
    Metric(engine.START[1], "s", 8, None, "likewise, without `init`"),
    Metric(LIMIT, PER_S, None, None, "32 connections to a server of constant bytes"),
    Metric(workloads.NOOP[0], "ms", 14, None, at_most=0.45),
    Metric(workloads.NOOP[1], "ms", None, None),
    Metric(workloads.NOOPS[0], PER_S, 10, None, "closed loop, keep-alive"),
    Metric(workloads.NOOPS[1], "ms", None, None),
    Metric(workloads.ITEM, "ms", 6, None, "a path parameter and a JSON body of a model"),
    Metric(workloads.ITEMS, PER_S, 6, None, "likewise"),
    Metric(engine.CALLS[0], PER_S, 20, None, "from the program; uvicorn: http.client"),
    Metric(engine.CALLS[1], PER_S, 20, None, "uvicorn: aiohttp"),
    Metric(engine.ITEMS, PER_S, 10, None, "items, 500 each"),
    Metric(engine.CHAINS[0], PER_S, 12, 25, "uvicorn: two of them"),
    Metric(engine.CHAINS[1], PER_S, 12, 25),
    Metric(workloads.CHAIN, PER_S, 12, 25),
    Metric(workloads.STREAMS[0], PER_S, 1.5, None, "chunks, over HTTP"),
    Metric(workloads.STREAMS[1], "ms", None, None),
    Metric(workloads.BODIES[0], "ms", 6, None, "a POST whose body is looked at"),
    Metric(workloads.BODIES[1], "ms", 1.2, None, "likewise"),
    Metric(workloads.BODIES[2], "ms", 1.2, None),
    Metric(workloads.BATCHES[0], PER_S, 7, None, "64 clients, a forest of 100 trees on digits"),
    Metric(workloads.BATCHES[1], "of 1", None, None, "that predicts full batches in one process"),
    Metric(workloads.BATCHES[2], "ms", None, None),
    Metric(workloads.DEPLOY[0], "s", 8, None, "until it has answered"),
    Metric(workloads.DEPLOY[1], "s", 10, None),
    Metric(workloads.TWENTY[0], "s", 20, None),
    Metric(workloads.TWENTY[1], "s", 10, None),
    Metric(workloads.TWENTY[2], "MiB", None, None, at_most=20),
    Metric(workloads.REDEPLOY[0], "s", 8, None, "two replicas, 8 connections, 20 ms a request"),
    Metric(workloads.REDEPLOY[1], REQUESTS, None, None, at_most=0),
    Metric(workloads.REDEPLOY[2], "s", None, None),
    Metric(workloads.REDEPLOY[3], "ms", None, None),
    Metric(workloads.KILLED[0], "s", None, None, "SIGKILL for one of two, likewise", at_most=1),
    Metric(workloads.KILLED[1], REQUESTS, None, None, at_most=1),
    Metric(workloads.KILLED[2], "ms", None, None),
    Metric(engine.SCALING[0], "s", 8, None, "16 connections, a delay of 1 s"),
    Metric(engine.SCALING[1], REQUESTS, None, None, at_most=0),
    Metric(engine.SCALING[2], "s", None, None, "a delay of 2 s"),
    Metric(engine.ZERO, "s", 8, None, "the request is held meanwhile"),
    Metric(workloads.REST[0], "% of a core", None, None, "with one replica", at_most=0.5),
    Metric(workloads.REST[1], "MiB", 5, None, "all processes without the program"),
    Metric(workloads.SHUTDOWN, "s", 5, None, "of Serve, without the cluster"),
)
IMPORT = """
import sys, time
start = time.perf_counter()
import importlib
importlib.import_module(sys.argv[1] + ".serve").run
print(time.perf_counter() - start, flush=True)
"""


def imports(m: Measuring) -> float:
    """Seconds, in fresh processes."""
    found = []
    for _ in range(m.rounds):
        done = subprocess.run(
            [sys.executable, "-c", IMPORT, m.module],
            cwd=Path(__file__).resolve().parents[2],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found.append(float(done.stdout))
    return statistics.median(found)


def measure(m: Measuring, options: argparse.Namespace) -> None:
    """Takes every metric of one engine, or of the anchors."""
    mark()
    timing = Timing(m, options.limit)
    with tempfile.TemporaryDirectory(prefix="bench-serve-") as name:
        folder, port = Path(name), free_port()
        if m.module == ANCHORS:
            server = Uvicorn(timing, port, folder)
            workloads.Workloads(timing, server, folder, options.replicas).run()
            server.run()
            return
        if m.module == "ray":
            # Else its workers yield to all that the machine does.
            os.environ.setdefault("RAY_worker_niceness", "0")
        timing.take("import", lambda: imports(m))
        if m.module == OURS:
            timing.take(LIMIT, lambda: generator_limit(m, port, folder))
        if m.wants(*(metric.name for metric in METRICS if metric.name not in ("import", LIMIT))):
            m.guard(lambda: on_cluster(timing, port, folder, options.replicas), "cluster")


def on_cluster(timing: Timing, port: int, folder: Path, replicas: int) -> None:
    """What one cluster does."""
    serving = engine.Engine(timing, port, folder)
    try:
        serving.start()
        workloads.Workloads(timing, serving, folder, replicas).run()
        serving.run()
    finally:
        serving.end()


def main() -> int:
    comparison = Comparison(__file__, __doc__, METRICS, anchors=True)
    add = comparison.parser.add_argument
    add("--limit", type=int, default=200, help="seconds after which a measurement has failed")
    add("--replicas", type=int, default=20, help="of the application with many")
    return comparison.run("serve", measure)


if __name__ == "__main__":
    sys.exit(main())
