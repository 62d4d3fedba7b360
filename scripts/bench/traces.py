"""The demand traces on which the quality of decisions is measured: clusters and what is asked of them, in seeded,
named cases. See autoscaler/rehearsal/trace.py for the format of a trace."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Entry = dict[str, Any]

MINUTE = 60.0
HOUR = 3600.0


@dataclass(frozen=True)
class Kind:
    """A node type with its price by the hour. `spot`: what it costs as an interruptible machine; None: not to be had
    so."""

    name: str
    resources: Mapping[str, float]
    price: float
    most: int = 100
    least: int = 0
    spot: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    zones: tuple[str, ...] = ()
    market: str = "on-demand"


@dataclass(frozen=True)
class Case:
    """A cluster and a trace.

    Attributes:
        trace: as `clusterctl simulate` reads it.
        boot_s: from the launch until the machine runs.
        setup_s: from there until its node has joined.
        upscaling_speed: in most cases so high that it limits nothing: the decision is what is measured.
        ray_tick_s: Ray decides only so often; 0: as often as ours.
    """

    name: str
    about: str
    kinds: tuple[Kind, ...]
    trace: Mapping[str, Any]
    boot_s: float = 40.0
    setup_s: float = 20.0
    idle_timeout_s: float = 120.0
    upscaling_speed: float = 100.0
    max_workers: int = 200
    ray_tick_s: float = 0.0


# Sizes and prices are in the proportions of a large cloud's.
CPU4 = Kind("cpu4", {"CPU": 4, "memory": 16e9}, 0.192)
CPU16 = Kind("cpu16", {"CPU": 16, "memory": 64e9}, 0.768)
CPU64 = Kind("cpu64", {"CPU": 64, "memory": 256e9}, 3.072)
MEM16 = Kind("mem16", {"CPU": 16, "memory": 128e9}, 1.008)
LEAN16 = Kind("lean16", {"CPU": 16, "memory": 32e9}, 0.68)
GPU1 = Kind("gpu1", {"CPU": 8, "GPU": 1, "memory": 32e9}, 1.212)
GPU4 = Kind("gpu4", {"CPU": 48, "GPU": 4, "memory": 192e9}, 5.672)
GPU8 = Kind("gpu8", {"CPU": 192, "GPU": 8, "memory": 768e9}, 16.288)
CPUS = (CPU4, CPU16, CPU64)
MIXED = (CPU4, CPU16, GPU1, GPU8)

_MAKERS: list[Callable[[random.Random], Case]] = []


def _case(make: Callable[[random.Random], Case]) -> Callable[[random.Random], Case]:
    _MAKERS.append(make)
    return make


def cases() -> dict[str, Case]:
    """Every case by its name, the same each time."""
    made = (make(random.Random(number)) for number, make in enumerate(_MAKERS))
    return {case.name: case for case in made}


def work(at_s: float, count: int, duration_s: float, **resources: float) -> Entry:
    """`count` equal tasks or actors."""
    return {"at_s": at_s, "count": count, "resources": resources, "duration_s": duration_s}


def uneven(
    rng: random.Random, at_s: float, count: int, low_s: float, high_s: float, **resources: float
) -> list[Entry]:
    """`count` tasks of different durations."""
    return [work(at_s, 1, round(rng.uniform(low_s, high_s), 1), **resources) for _ in range(count)]


def group(
    at_s: float, strategy: str, bundles: int, duration_s: float, count: int = 1, **resources: float
) -> Entry:
    """`count` placement groups of equal bundles."""
    made = [dict(resources) for _ in range(bundles)]
    return {"at_s": at_s, "strategy": strategy, "bundles": made, "count": count, "duration_s": duration_s}


def arrivals(rng: random.Random, until_s: float, per_s: Callable[[float], float]) -> list[float]:
    """Times of independent arrivals at a changing rate (by thinning)."""
    most = max(per_s(until_s * step / 200) for step in range(201))
    times, now = [], 0.0
    while (now := now + rng.expovariate(most)) < until_s:
        if rng.random() < per_s(now) / most:
            times.append(round(now, 1))
    return times


def _trace(name: str, **parts: Any) -> dict[str, Any]:
    return {"name": name, "seed": 1, **parts}


# ---------------------------------------------------------------- bursts


@_case
def _burst(rng: random.Random) -> Case:
    trace = _trace("burst", tasks=[work(5, 400, 300, CPU=1)])
    return Case("burst", "400 tasks of a CPU for 5 min, at once", CPUS, trace)


@_case
def _burst_short(rng: random.Random) -> Case:
    trace = _trace("burst-short", tasks=[work(5, 1000, 10, CPU=1)])
    return Case("burst of short tasks", "1,000 tasks of a CPU for 10 s, at once", CPUS, trace)


@_case
def _bursts(rng: random.Random) -> Case:
    tasks = [
        task for number in range(5) for task in uneven(rng, 5 + number * 10 * MINUTE, 100, 60, 180, CPU=2)
    ]
    return Case("bursts", "100 tasks of two CPUs every 10 min", CPUS, _trace("bursts", tasks=tasks))


@_case
def _staggered(rng: random.Random) -> Case:
    tasks = [work(5 + number * 15, 20, 240, CPU=1) for number in range(20)]
    trace = _trace("staggered", tasks=tasks)
    return Case("staggered burst", "20 tasks of a CPU every 15 s, 20 times", CPUS, trace)


@_case
def _pace(rng: random.Random) -> Case:
    trace = _trace("pace", tasks=[work(5, 300, 600, CPU=2)])
    # Ray counts its pace by its own ticks.
    about = "300 tasks of two CPUs for 10 min; upscaling_speed 1 and one node type"
    return Case("paced burst", about, (CPU4,), trace, upscaling_speed=1.0, ray_tick_s=5.0)


# ---------------------------------------------------------------- load that changes


@_case
def _trickle(rng: random.Random) -> Case:
    times = arrivals(rng, HOUR, lambda _: 1 / 20)
    tasks = [task for at_s in times for task in uneven(rng, at_s, 1, 30, 300, CPU=1)]
    return Case("trickle", "a task of a CPU every 20 s on average", CPUS, _trace("trickle", tasks=tasks))


@_case
def _diurnal(rng: random.Random) -> Case:
    day_s = 2 * HOUR
    times = arrivals(rng, day_s, lambda t: 0.02 + 0.2 * (1 - math.cos(2 * math.pi * t / day_s)) / 2)
    tasks = [task for at_s in times for task in uneven(rng, at_s, 1, 120, 360, CPU=2)]
    about = "tasks of two CPUs, a day's tide pressed into two hours"
    return Case("diurnal", about, CPUS, _trace("diurnal", tasks=tasks))


@_case
def _diurnal_mixed(rng: random.Random) -> Case:
    day_s = 2 * HOUR
    times = arrivals(rng, day_s, lambda t: 0.02 + 0.12 * (1 - math.cos(2 * math.pi * t / day_s)) / 2)
    tasks: list[Entry] = []
    for at_s in times:
        if rng.random() < 0.3:
            tasks += uneven(rng, at_s, 1, 120, 360, CPU=4, GPU=1)
        else:
            tasks += uneven(rng, at_s, 1, 60, 240, CPU=2)
    about = "the same tide with GPU work, 3 tasks in 10"
    return Case("diurnal, GPU and CPU", about, MIXED, _trace("diurnal-mixed", tasks=tasks))


@_case
def _long_tail(rng: random.Random) -> Case:
    tasks = [work(5, 1, round(min(1800.0, rng.paretovariate(1.1) * 40), 1), CPU=1) for _ in range(200)]
    about = "200 tasks at once whose durations have a long tail: most machines empty long before the last task ends"
    return Case("long tail", about, CPUS, _trace("long-tail", tasks=tasks))


@_case
def _actors(rng: random.Random) -> Case:
    actors = [work(5 + number * 60, 4, 1800, CPU=1) for number in range(5)]
    times = arrivals(rng, 1800, lambda _: 1 / 30)
    tasks = [task for at_s in times for task in uneven(rng, at_s, 4, 30, 120, CPU=1)]
    about = "actors that live for half an hour, with tasks that come and go beside them"
    return Case("actors and tasks", about, CPUS, _trace("actors", actors=actors, tasks=tasks))


# ---------------------------------------------------------------- gangs


@_case
def _strict_pack(rng: random.Random) -> Case:
    groups = [group(5 + number * 120, "STRICT_PACK", 4, 600, GPU=1, CPU=4) for number in range(6)]
    about = "groups of four GPUs on one machine, one every 2 min"
    kinds = (CPU16, GPU1, GPU4, GPU8)
    return Case("gangs: STRICT_PACK", about, kinds, _trace("strict-pack", groups=groups))


@_case
def _strict_spread(rng: random.Random) -> Case:
    groups = [group(5, "STRICT_SPREAD", 8, 600, CPU=2), group(200, "STRICT_SPREAD", 4, 600, 3, CPU=2)]
    about = "bundles of two CPUs, each on a machine of its own: a group of 8, then three of 4"
    return Case("gangs: STRICT_SPREAD", about, CPUS, _trace("strict-spread", groups=groups))


@_case
def _pack(rng: random.Random) -> Case:
    groups = [group(5, "PACK", 12, 600, CPU=4), group(300, "SPREAD", 6, 600, 2, CPU=4)]
    about = "a PACK group of 12 bundles, then two SPREAD groups of 6, of four CPUs each"
    return Case("gangs: PACK and SPREAD", about, CPUS, _trace("pack", groups=groups))


@_case
def _gangs_and_tasks(rng: random.Random) -> Case:
    groups = [
        group(at_s, rng.choice(("PACK", "SPREAD", "STRICT_SPREAD")), rng.choice((2, 4, 8)), 420, CPU=2)
        for at_s in arrivals(rng, 1800, lambda _: 1 / 120)
    ]
    times = arrivals(rng, 1800, lambda _: 1 / 60)
    tasks = [task for at_s in times for task in uneven(rng, at_s, 5, 60, 180, CPU=1)]
    about = "placement groups of three strategies among tasks"
    return Case("gangs and tasks", about, CPUS, _trace("gangs-and-tasks", groups=groups, tasks=tasks))


@_case
def _training(rng: random.Random) -> Case:
    groups = [group(5, "PACK", 8, 900, GPU=1, CPU=8), group(600, "STRICT_SPREAD", 2, 900, GPU=4, CPU=32)]
    tasks = [work(60 + number * 120, 24, 100, CPU=1) for number in range(8)]
    about = "GPU training groups with CPU preprocessing beside them"
    kinds = (CPU4, CPU16, GPU1, GPU4, GPU8)
    return Case("training", about, kinds, _trace("training", groups=groups, tasks=tasks))


# ---------------------------------------------------------------- mixed GPU and CPU


@_case
def _gpu_and_cpu(rng: random.Random) -> Case:
    trace = _trace("gpu-and-cpu", tasks=[work(5, 16, 300, GPU=1, CPU=2), work(5, 160, 300, CPU=1)])
    return Case("GPU and CPU", "16 tasks of a GPU and 160 of a CPU, at once", MIXED, trace)


@_case
def _gpu_fractions(rng: random.Random) -> Case:
    tasks = [
        work(5, 30, 240, GPU=0.25, CPU=1),
        work(5, 10, 240, GPU=0.5, CPU=2),
        work(5, 3, 240, GPU=2, CPU=4),
    ]
    about = "parts of GPUs beside whole ones"
    return Case("GPU fractions", about, (CPU16, GPU1, GPU4, GPU8), _trace("gpu-fractions", tasks=tasks))


@_case
def _preprocess(rng: random.Random) -> Case:
    tasks = [work(5 + number * 200, 60, 90, CPU=1) for number in range(6)]
    tasks += [work(100 + number * 200, 6, 150, GPU=1, CPU=2) for number in range(6)]
    about = "CPU work, then GPU work, in turns"
    return Case("pipeline of CPU and GPU", about, MIXED, _trace("pipeline", tasks=tasks))


# ---------------------------------------------------------------- fragmentation


@_case
def _odd_sizes(rng: random.Random) -> Case:
    tasks = [work(5, 40, 300, CPU=3), work(5, 30, 300, CPU=5), work(5, 10, 300, CPU=11)]
    about = "tasks of 3, 5 and 11 CPUs on machines of 4, 16 and 64"
    return Case("odd sizes", about, CPUS, _trace("odd-sizes", tasks=tasks))


@_case
def _memory(rng: random.Random) -> Case:
    tasks = [work(5, 60, 300, CPU=1, memory=12e9), work(5, 120, 300, CPU=2, memory=1e9)]
    about = "tasks that need memory beside tasks that need CPUs"
    return Case("memory and CPU", about, (CPU16, MEM16, LEAN16), _trace("memory", tasks=tasks))


@_case
def _many_shapes(rng: random.Random) -> Case:
    tasks = [
        work(5, 2, 300, CPU=rng.randint(1, 16) * 0.5, memory=rng.randint(1, 60) * 5e8) for _ in range(100)
    ]
    about = "100 shapes of random size, two tasks each"
    kinds = (CPU4, CPU16, CPU64, MEM16, LEAN16)
    return Case("many shapes", about, kinds, _trace("many-shapes", tasks=tasks))


@_case
def _stranded(rng: random.Random) -> Case:
    tasks = []
    for number in range(6):
        tasks += [work(5 + number * 300, 48, 60, CPU=1), work(6 + number * 300, 2, 900, CPU=1)]
    about = "every 5 min a burst of a minute, and two tasks of 15 min that keep machines from being empty"
    return Case("stranded tasks", about, CPUS, _trace("stranded", tasks=tasks))


# ---------------------------------------------------------------- labels, limits, requests


@_case
def _labels(rng: random.Random) -> Case:
    kinds = (
        replace(CPU16, name="east", labels={"region": "east"}),
        replace(CPU16, name="west", labels={"region": "west"}, price=0.9),
        CPU4,
    )
    tasks = [
        {**work(5, 40, 240, CPU=2), "selector": {"region": "east"}},
        {**work(5, 40, 240, CPU=2), "selector": {"region": "in(east,west)"}},
        {**work(5, 20, 240, CPU=2), "selector": {"region": "west"}, "fallbacks": [{"region": "east"}]},
        work(5, 40, 240, CPU=2),
    ]
    about = "label selectors, one with a fallback"
    return Case("labels", about, kinds, _trace("labels", tasks=tasks))


@_case
def _limited(rng: random.Random) -> Case:
    tasks = [work(5, 200, 120, CPU=2), work(400, 30, 120, CPU=8)]
    kinds = (replace(CPU16, most=6),)
    about = "a queue before six machines of 16 CPUs at most"
    return Case("max_workers", about, kinds, _trace("limited", tasks=tasks))


@_case
def _min_workers(rng: random.Random) -> Case:
    times = arrivals(rng, 1800, lambda _: 1 / 30)
    tasks = [task for at_s in times for task in uneven(rng, at_s, 2, 20, 60, CPU=1)]
    about = "two workers are kept; light load, one burst"
    kinds = (replace(CPU4, least=2), CPU16)
    # Kept workers are paid until the end, which therefore is the same for all.
    trace = _trace("min-workers", tasks=[*tasks, work(900, 40, 120, CPU=1)], until_s=2400)
    return Case("min_workers", about, kinds, trace)


@_case
def _requested(rng: random.Random) -> Case:
    requests = [{"at_s": 5, "bundles": [{"CPU": 4}] * 8, "ttl_s": 400, "owner": "me"}]
    trace = _trace("requested", requests=requests, tasks=[work(150, 32, 240, CPU=1)])
    about = "room for 8 x 4 CPUs is requested before 32 tasks come"
    return Case("request_resources", about, (CPU4, CPU16), trace)


# ---------------------------------------------------------------- faults


@_case
def _spot_loss(rng: random.Random) -> Case:
    kinds = (replace(CPU16, spot=0.26),)
    faults = [
        {"at_s": at_s, "kind": "spot_loss", "node_type": "cpu16", "market": "spot", "count": 2}
        for at_s in (240, 420, 600)
    ]
    trace = _trace("spot-loss", tasks=uneven(rng, 5, 192, 240, 480, CPU=1), faults=faults)
    return Case("spot loss", "spot machines, of which two are lost three times", kinds, trace)


@_case
def _spot_taken(rng: random.Random) -> Case:
    kinds = (replace(CPU16, spot=0.26),)
    spot = {"node_type": "cpu16", "market": "spot"}
    faults = [{"at_s": at_s, "kind": "spot_loss", "count": 4, **spot} for at_s in (240, 600)]
    faults += [{"at_s": at_s, "until_s": at_s + 240, "kind": "stockout", **spot} for at_s in (240, 600)]
    trace = _trace("spot-taken", tasks=uneven(rng, 5, 192, 240, 480, CPU=1), faults=faults)
    about = "four spot machines are taken back twice, and for 4 min there are no others"
    return Case("spot taken back", about, kinds, trace)


@_case
def _spot_stockout(rng: random.Random) -> Case:
    kinds = (replace(CPU16, spot=0.26),)
    out = {"at_s": 0, "until_s": 900, "kind": "stockout", "node_type": "cpu16", "market": "spot"}
    tasks = [work(5 + number * 300, 48, 240, CPU=1) for number in range(5)]
    trace = _trace("spot-stockout", tasks=tasks, faults=[out])
    return Case("no spot for 15 min", "on-demand machines are to be had all the while", kinds, trace)


@_case
def _type_stockout(rng: random.Random) -> Case:
    out = {"at_s": 0, "until_s": 1200, "kind": "stockout", "node_type": "cpu16"}
    tasks = [work(5 + number * 240, 48, 200, CPU=4) for number in range(4)]
    trace = _trace("type-stockout", tasks=tasks, faults=[out])
    about = "the type of the best size is out of stock for 20 min; a larger one is not"
    return Case("a type out of stock", about, (CPU16, CPU64), trace)


@_case
def _zone_stockout(rng: random.Random) -> Case:
    kinds = (replace(CPU16, zones=("a", "b")),)
    out = {"at_s": 0, "until_s": 1200, "kind": "stockout", "node_type": "cpu16", "zone": "a"}
    tasks = [work(5 + number * 240, 48, 200, CPU=2) for number in range(4)]
    trace = _trace("zone-stockout", tasks=tasks, faults=[out])
    return Case("a zone out of stock", "for 20 min; the other zone has machines", kinds, trace)


@_case
def _no_stock(rng: random.Random) -> Case:
    out = {"at_s": 0, "until_s": 300, "kind": "stockout"}
    trace = _trace("no-stock", tasks=[work(5, 96, 240, CPU=1)], faults=[out])
    return Case("nothing in stock for 5 min", "then everything", (CPU4, CPU16), trace)


@_case
def _deaths(rng: random.Random) -> Case:
    faults = [{"at_s": at_s, "kind": "node_death", "count": 2} for at_s in (200, 350, 500)]
    trace = _trace("deaths", tasks=uneven(rng, 5, 128, 200, 400, CPU=1), faults=faults)
    return Case("nodes die", "two nodes, three times", CPUS[:2], trace)


@_case
def _setups_fail(rng: random.Random) -> Case:
    faults = [{"at_s": 0, "until_s": 600, "kind": "setup_failure", "probability": 0.3}]
    tasks = [work(5, 64, 240, CPU=1), work(300, 64, 240, CPU=1)]
    trace = _trace("setups-fail", tasks=tasks, faults=faults)
    return Case("setups fail", "three in ten, for 10 min", CPUS[:2], trace)
