"""Times one plan of the autoscaler on large clusters: `python scripts/bench/autoscaler.py [--case NAME]`. Prints one
line of JSON.

Each case has 1,000 busy nodes and waiting requests that need new ones. "existing" cases have a few shapes
that idle nodes can take as well. Times are of `plan()` alone, best of three.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from figures import Figures, run

from autoscaler.config import AutoscalerConfig
from autoscaler.demand import Demand, Gang, Shape
from autoscaler.instances import Instance, InstanceState
from autoscaler.offerings import Offerings, market_of
from autoscaler.plan import Plan, plan
from autoscaler.provider import NodeType
from autoscaler.snapshot import Snapshot, profile_of
from runtime._core.resources import to_units
from runtime._wire.messages.base import NodeInfo

TYPES = (
    NodeType("head", {"CPU": 4}),
    NodeType("cpu16", {"CPU": 16, "memory": 64e9}, max_workers=20_000),
    NodeType("cpu64", {"CPU": 64, "memory": 256e9}, max_workers=20_000),
    NodeType("gpu8", {"CPU": 96, "GPU": 8, "memory": 768e9}, max_workers=20_000),
)


def snapshot(
    nodes: int, shapes: list[tuple[Shape, int]], gangs: tuple[Gang, ...] = (), seed: int = 0
) -> Snapshot:
    """`nodes` nodes of random load, and what waits."""
    rng = random.Random(seed)
    config = AutoscalerConfig("bench", "bench", TYPES, "head", max_workers=50_000, upscaling_speed=100.0)
    infos: list[NodeInfo] = []
    instances: list[Instance] = []
    for number in range(nodes):
        kind = TYPES[1 + number % 3]
        total = to_units(kind.resources)
        available = dict(total)
        available["CPU"] = rng.randrange(0, total["CPU"] // 10_000) * 10_000
        node_id = f"{number:028d}".encode()
        infos.append(
            NodeInfo(
                node_id,
                "ALIVE",
                "",
                "",
                "",
                "",
                False,
                "",
                total,
                available,
                {},
                instance_id=f"i{number}",
                node_type=kind.name,
            )
        )
        instances.append(
            Instance(
                f"i{number}",
                kind.name,
                InstanceState.RUNNING,
                0.0,
                0.0,
                machine_id=f"m{number}",
                node_id=node_id,
            )
        )
    return Snapshot(
        1000.0,
        config,
        Demand(tuple(shapes), gangs),
        tuple(infos),
        tuple(instances),
        {kind.name: market_of(kind, {}, Offerings(), 1000.0) for kind in TYPES},
        {kind.name: profile_of(kind, ()) for kind in TYPES},
    )


def shapes(kinds: int, requests: int, seed: int = 0) -> list[tuple[Shape, int]]:
    """`requests` requests in `kinds` different shapes."""
    rng = random.Random(seed)
    found: dict[Shape, int] = {}
    while len(found) < kinds:
        amounts = {"CPU": rng.randint(1, 32) * 0.5, "memory": float(rng.randint(1, 64) * 10**8)}
        if rng.random() < 0.1:
            amounts["GPU"] = float(rng.randint(1, 8))
        found[Shape.of(to_units(amounts))] = requests // kinds
    return list(found.items())


def gangs(count: int, bundles: int) -> tuple[Gang, ...]:
    """`count` equal groups."""
    shape = Shape.of(to_units({"CPU": 4}))
    strategies = ("PACK", "SPREAD", "STRICT_SPREAD", "STRICT_PACK")
    return tuple(Gang(f"{n:018d}".encode(), strategies[n % 4], (shape,) * bundles) for n in range(count))


def measure(make: Callable[[], Snapshot]) -> tuple[float, Plan]:
    """Best of three."""
    picture = make()
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        result = plan(picture)
        best = min(best, time.perf_counter() - began)
    return best, result


CASES: dict[str, Callable[[], Snapshot]] = {
    "1000 nodes, 2000 requests, 20 shapes": lambda: snapshot(1000, shapes(20, 2000)),
    "1000 nodes, 10000 requests, 20 shapes": lambda: snapshot(1000, shapes(20, 10_000)),
    "1000 nodes, 10000 requests, 1000 shapes": lambda: snapshot(1000, shapes(1000, 10_000)),
    "1000 nodes, 1000000 requests, 20 shapes": lambda: snapshot(1000, shapes(20, 1_000_000)),
    "10000 nodes, 10000 requests, 20 shapes": lambda: snapshot(10_000, shapes(20, 10_000)),
    "1000 nodes, 200 groups of 8 bundles": lambda: snapshot(1000, [], gangs(200, 8)),
    "1000 nodes, 1200 groups of 8 bundles": lambda: snapshot(1000, [], gangs(1200, 8)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", default="", help="only the cases whose name contains this")
    options = parser.parse_args()
    figures = Figures("autoscaler")

    def case(name: str) -> None:
        seconds, result = measure(CASES[name])
        launched = sum(launch.count for launch in result.launches)
        figures.add(name, seconds, "s", f"{launched:,} machines are to be launched; best of three")

    return run(figures, {name: partial(case, name) for name in CASES}, options.case)


if __name__ == "__main__":
    sys.exit(main())
