"""How fast the engine is: one number per operation, through the public API.

    python scripts/bench/engine.py                       # this engine
    python scripts/bench/engine.py --module ray          # another with the same API, where it is installed
    python scripts/bench/engine.py --against OTHER_PYTHON --module ray    # both in turn, and the ratios

Rates are operations per second, the median of the rounds; "seconds" and "MiB" are what they say.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ROUNDS = 3
ROUND_S = 1.0
WARM_UP_S = 0.3


def rate(operation: Callable[[], Any], count: int = 1) -> float:
    """Operations per second; `operation` does `count` of them."""
    end = time.perf_counter() + WARM_UP_S
    while time.perf_counter() < end:
        operation()
    rounds = []
    for _ in range(ROUNDS):
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < ROUND_S:
            operation()
            done += count
        rounds.append(done / (time.perf_counter() - start))
    return round(statistics.median(rounds), 1)


def measure(module: str) -> dict[str, float]:
    """Runs everything against one engine."""
    ray: Any = importlib.import_module(module)
    extra = {"include_dashboard": False, "logging_level": "ERROR"} if module == "ray" else {}
    results: dict[str, float] = {}
    start = time.perf_counter()
    ray.init(num_cpus=2, log_to_driver=False, **extra)

    @ray.remote
    def nothing(*_args: Any) -> bytes:
        return b"ok"

    @ray.remote(num_cpus=0)
    class Actor:
        def nothing(self) -> bytes:
            return b"ok"

    @ray.remote(num_cpus=0)
    class AsyncActor:
        async def nothing(self) -> bytes:
            return b"ok"

    ray.get(nothing.remote())
    results["init to first result, seconds"] = round(time.perf_counter() - start, 3)

    large = np.zeros(100 * 2**20, dtype=np.uint8)
    medium = np.zeros(2**20, dtype=np.uint8)
    shared = ray.put(medium)
    results["put of 100 MiB arrays, GiB/s"] = round(rate(lambda: ray.put(large), 100) / 1024, 2)
    results["put of 1 MiB"] = rate(lambda: ray.put(medium))
    results["get of 1 MiB, shared"] = rate(lambda: ray.get(shared))
    results["put of a number"] = rate(lambda: ray.put(0))

    results["tasks one by one"] = rate(lambda: ray.get(nothing.remote()))
    results["tasks in batches of 1000"] = rate(lambda: ray.get([nothing.remote() for _ in range(1000)]), 1000)
    results["tasks with a shared array of 1 MiB"] = rate(
        lambda: ray.get([nothing.remote(shared) for _ in range(100)]), 100
    )

    def chain() -> None:
        ref = nothing.remote()
        for _ in range(99):
            ref = nothing.remote(ref)
        ray.get(ref)

    results["dependent tasks"] = rate(chain, 100)
    for name, cls in (("actor", Actor), ("async actor", AsyncActor)):
        actor = cls.remote()
        ray.get(actor.nothing.remote())
        results[f"{name} calls one by one"] = rate(lambda a=actor: ray.get(a.nothing.remote()))
        results[f"{name} calls in batches of 1000"] = rate(
            lambda a=actor: ray.get([a.nothing.remote() for _ in range(1000)]), 1000
        )

    def actors() -> None:
        made = [Actor.remote() for _ in range(4)]
        ray.get([actor.nothing.remote() for actor in made])
        for actor in made:
            ray.kill(actor)

    results["actors created to their first result"] = rate(actors, 4)
    start = time.perf_counter()
    ray.shutdown()
    results["shutdown, seconds"] = round(time.perf_counter() - start, 3)
    return results


def compare(other_python: str, module: str) -> None:
    """Runs the other engine and this one in turn and prints the ratios; above 1 this one is ahead."""
    command = [__file__, "--json"]
    other = json.loads(subprocess.check_output([other_python, *command, "--module", module], timeout=900))
    own = json.loads(subprocess.check_output([sys.executable, *command], timeout=900))
    for name, value in own.items():
        ratio = other[name] / value if "seconds" in name else value / other[name]
        print(f"{name:42} {module} {other[name]:>12}   runtime {value:>12}   x{ratio:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--module", default="runtime")
    parser.add_argument("--against", help="a Python that has MODULE installed")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.against:
        compare(args.against, args.module)
        return
    results = measure(args.module)
    if args.json:
        print(json.dumps(results))
    else:
        for name, value in results.items():
            print(f"{name:42} {value:>12}")


if __name__ == "__main__":
    main()
