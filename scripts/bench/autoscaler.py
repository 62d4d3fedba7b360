"""Times the autoscaler on large clusters: `python scripts/bench/autoscaler.py [--case NAME] [--chart FILE]`. Prints one
line of JSON.

Every case has busy nodes of three types and waiting requests that need new ones. A "plan" is `plan()` alone; a
"tick" is `Reconciler.step()`: what is observed, what is asked for, the plan, and its effects. "Every node different"
means that each has another amount of free memory, so that no two nodes are one class. Times are of the CPU, the best
of three. The growth cases are drawn with `--chart`.
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

from chart import Series, draw
from figures import Figures, run

from autoscaler.config import AutoscalerConfig
from autoscaler.demand import Demand, Gang, Shape
from autoscaler.effects import Listing
from autoscaler.instances import Instance, InstanceState
from autoscaler.memory import Memory
from autoscaler.offerings import Offerings, market_of
from autoscaler.plan import Plan, plan
from autoscaler.provider import Capabilities, Machine, MachineState, MachineTags, NodeType
from autoscaler.reconciler import Reconciler, World
from autoscaler.snapshot import Snapshot, profile_of
from runtime._core.resources import to_units
from runtime._wire.messages.base import Demand as Waiting
from runtime._wire.messages.base import NodeInfo, ResourceRequest
from runtime._wire.messages.control import ClusterState, PendingGroup

NOW = 1000.0
TYPES = (
    NodeType("head", {"CPU": 4}),
    NodeType("cpu16", {"CPU": 16, "memory": 64e9}, max_workers=200_000),
    NodeType("cpu64", {"CPU": 64, "memory": 256e9}, max_workers=200_000),
    NodeType("gpu8", {"CPU": 96, "GPU": 8, "memory": 768e9}, max_workers=200_000),
)
CONFIG = AutoscalerConfig("bench", "bench", TYPES, "head", max_workers=500_000, upscaling_speed=100.0)


def cluster(count: int, *, different: bool = False, busy: bool = False, seed: int = 0) -> list[NodeInfo]:
    """`count` nodes of random load; `busy`: with hardly any room."""
    rng = random.Random(seed)
    nodes = []
    for number in range(count):
        kind = TYPES[1 + number % 3]
        total = to_units(kind.resources)
        available = dict(total)
        most = 1 if busy else total["CPU"] // 10_000
        available["CPU"] = rng.randrange(0, most) * 10_000
        if different:
            available["memory"] = rng.randrange(0, total["memory"])
        nodes.append(
            NodeInfo(
                f"{number:028d}".encode(),
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
    return nodes


def instance_of(node: NodeInfo) -> Instance:
    """The instance of a node."""
    return Instance(
        node.instance_id,
        node.node_type,
        InstanceState.RUNNING,
        0.0,
        NOW,
        machine_id=f"m-{node.instance_id}",
        node_id=node.node_id,
    )


def snapshot(
    nodes: list[NodeInfo], shapes: list[tuple[Shape, int]], gangs: tuple[Gang, ...] = ()
) -> Snapshot:
    """The nodes, and what waits."""
    return Snapshot(
        NOW,
        CONFIG,
        Demand(tuple(shapes), gangs),
        tuple(nodes),
        tuple(instance_of(node) for node in nodes),
        {kind.name: market_of(kind, {}, Offerings(), NOW) for kind in TYPES},
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


def gangs(count: int, bundles: int, different: int = 1) -> tuple[Gang, ...]:
    """`count` groups of `different` kinds of bundles and all strategies."""
    strategies = ("PACK", "SPREAD", "STRICT_SPREAD", "STRICT_PACK")
    kinds = [Shape.of(to_units({"CPU": 4 + number / 100})) for number in range(different)]
    return tuple(
        Gang(f"{n:018d}".encode(), strategies[n % 4], (kinds[n % different],) * bundles) for n in range(count)
    )


def best_of_three(work: Callable[[], None]) -> float:
    """Seconds of the CPU: nothing waits here, and what else the machine does is not counted."""
    times = []
    for _ in range(3):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def measure(picture: Snapshot) -> tuple[float, Plan]:
    """How long a plan takes, and the plan."""
    results: list[Plan] = []
    seconds = best_of_three(lambda: results.append(plan(picture)))
    return seconds, results[0]


def tick(
    nodes: list[NodeInfo], wanted: list[tuple[Shape, int]], groups: tuple[Gang, ...] = ()
) -> tuple[float, Plan]:
    """How long a tick takes when all instances run, are listed and were looked at before, and its plan."""
    tags = {MachineTags.CLUSTER_ID: "bench", MachineTags.ROLE: MachineTags.WORKER}
    machines = tuple(
        Machine(
            f"m-{node.instance_id}",
            MachineState.RUNNING,
            node.node_type,
            {**tags, MachineTags.INSTANCE_ID: node.instance_id},
            "10.0.0.1",
        )
        for node in nodes
    )
    listing = Listing(NOW, machines)
    requests = [Waiting(ResourceRequest(dict(shape.resources)), count) for shape, count in wanted]
    pending = [
        PendingGroup(
            gang.id, gang.strategy, [dict(s.resources) for s in gang.bundles], [b""] * len(gang.bundles)
        )
        for gang in groups
    ]
    calm = World(ClusterState(1, NOW, nodes, [], [], []), listing)
    asked = World(ClusterState(2, NOW, nodes, requests, pending, []), listing)
    instances = tuple(instance_of(node) for node in nodes)
    reconcilers = [Reconciler(CONFIG, Capabilities(), memory=Memory(instances=instances)) for _ in range(3)]
    for reconciler in reconcilers:
        reconciler.step(calm, NOW + 1.0)
    waiting = list(reconcilers)
    seconds = best_of_three(lambda: waiting.pop().step(asked, NOW + 2.0) and None)
    return seconds, reconcilers[0].plan


GROWTH = (100, 300, 1000, 3000, 10_000, 30_000, 100_000)

CASES: dict[str, tuple[Callable[[], tuple[float, Plan]], float | None]] = {
    "1,000 nodes, 10,000 requests in 20 shapes": (
        lambda: measure(snapshot(cluster(1000), shapes(20, 10_000))),
        0.1,
    ),
    "1,000 nodes, 10,000 requests in 20 shapes, every node different": (
        lambda: measure(snapshot(cluster(1000, different=True), shapes(20, 10_000))),
        0.1,
    ),
    "1,000 nodes, 1,000 requests of 1,000 shapes": (
        lambda: measure(snapshot(cluster(1000), shapes(1000, 1000))),
        1.0,
    ),
    "1,000 busy nodes, 1,000 requests of 1,000 shapes, every node different": (
        lambda: measure(snapshot(cluster(1000, different=True, busy=True), shapes(1000, 1000))),
        1.0,
    ),
    "1,000 nodes, 1,000,000 requests in 20 shapes": (
        lambda: measure(snapshot(cluster(1000), shapes(20, 1_000_000))),
        None,
    ),
    "1,000 nodes, 1,200 groups of 8 bundles": (
        lambda: measure(snapshot(cluster(1000), [], gangs(1200, 8))),
        None,
    ),
    "1,000 nodes, a group of each strategy with 1,000 bundles": (
        lambda: measure(snapshot(cluster(1000), [], gangs(3, 1000))),
        None,
    ),
    "10,000 nodes, 100,000 requests in 100 shapes, 500 groups": (
        lambda: measure(snapshot(cluster(10_000), shapes(100, 100_000), gangs(500, 8))),
        1.0,
    ),
    "10,000 nodes, 100,000 requests in 100 shapes, 500 different groups, every node different": (
        lambda: measure(
            snapshot(cluster(10_000, different=True), shapes(100, 100_000), gangs(500, 8, different=125))
        ),
        1.0,
    ),
    "10,000 busy nodes, 100,000 requests in 100 shapes, 500 different groups, every node different": (
        lambda: measure(
            snapshot(
                cluster(10_000, different=True, busy=True), shapes(100, 100_000), gangs(500, 8, different=125)
            )
        ),
        1.0,
    ),
    "tick, 1,000 settled nodes": (lambda: tick(cluster(1000, busy=True), []), None),
    "tick, 10,000 settled nodes": (lambda: tick(cluster(10_000, busy=True), []), None),
    "tick, 10,000 nodes, 100,000 requests in 100 shapes, 500 groups": (
        lambda: tick(cluster(10_000), shapes(100, 100_000), gangs(500, 8)),
        None,
    ),
}


def growth(figures: Figures, series: list[Series]) -> None:
    """Plans and ticks for clusters of every size, ten requests for each node."""
    plans = Series("plan")
    unlike = Series("plan, every node different")
    ticks = Series("tick")
    for count in GROWTH:
        wanted = shapes(100, 10 * count)
        for line, (seconds, _) in (
            (plans, measure(snapshot(cluster(count), wanted))),
            (unlike, measure(snapshot(cluster(count, different=True), wanted))),
            (ticks, tick(cluster(count), wanted)),
        ):
            line.points.append((count, seconds))
            figures.add(
                f"growth, {line.name}, {count:,} nodes",
                seconds,
                "s",
                "100 shapes, ten requests for each node",
            )
    series += [plans, unlike, ticks]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", default="", help="only the cases whose name contains this")
    parser.add_argument("--chart", type=Path, help="where to draw the growth, as SVG")
    options = parser.parse_args()
    figures = Figures("autoscaler")
    series: list[Series] = []

    def case(name: str) -> None:
        work, at_most = CASES[name]
        seconds, result = work()
        launched = sum(launch.count for launch in result.launches)
        figures.add(name, seconds, "s", f"{launched:,} machines are to be launched", at_most=at_most)

    measurements: dict[str, Callable[[], None]] = {name: partial(case, name) for name in CASES}
    measurements["growth"] = lambda: growth(figures, series)
    status = run(figures, measurements, options.case)
    if options.chart and series:
        title = "One decision of the autoscaler: 100 shapes, ten waiting requests for each node"
        options.chart.write_text(draw(title, "nodes", "seconds", series))
    return status


if __name__ == "__main__":
    sys.exit(main())
