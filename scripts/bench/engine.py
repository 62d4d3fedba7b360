"""How fast the engine is, one figure per operation, through the public API. Prints one line of JSON.

    python scripts/bench/engine.py                                  # this engine
    python scripts/bench/engine.py --module ray                     # another with the same API, where it is installed
    python scripts/bench/engine.py --against OTHER_PYTHON           # this engine, and how it compares to Ray there
    python scripts/bench/engine.py --only "actor calls"             # some of it

Rates are operations per second, the median of the rounds. Ratios are medians of the runs; above 1 this engine is ahead.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from comparison import PER_S, Comparison, Measuring, Metric
from processes import pss_bytes, with_descendants

CPUS = 2
MIB = 2**20
METRICS = (
    Metric("init to first result", "s", 6, 12, "`init`, one task, its result"),
    Metric("get of a number", PER_S, 10, 50, "an object that is here"),
    Metric("put of a number", PER_S, 20, 100, ""),
    Metric("put of 100 MiB arrays", "GiB/s", 8, 12, "into memory of the store that was used before"),
    Metric("put of 1 MiB", PER_S, 4, 8, ""),
    Metric("get of 1 MiB", PER_S, 4, 8, "read in place"),
    Metric("tasks one by one", PER_S, 8, 15, "each is waited for before the next"),
    Metric("tasks in batches of 1,000", PER_S, 12, 35, ""),
    Metric("tasks with an array of 1 MiB", PER_S, 8, 20, "by reference, 100 at once"),
    Metric("tasks returning 1 MiB", PER_S, 6, 12, "50 at once"),
    Metric(
        "wait on 1,000 references one by one", PER_S, 15, 60, "1,000 tasks, and `wait` for one more each time"
    ),
    Metric("actor calls one by one", PER_S, 4, 8, ""),
    Metric("actor calls in batches of 1,000", PER_S, 6, 14, ""),
    Metric("async actor calls one by one", PER_S, 4, 9, ""),
    Metric("async actor calls in batches of 1,000", PER_S, 8, 20, ""),
    Metric("threaded actor calls in batches of 1,000", PER_S, 5, 10, "max_concurrency=16"),
    Metric("calls from two actors to two", PER_S, 4, 10, "each calls each 500 times"),
    Metric("tasks of two clients", PER_S, 8, 20, "two actors that submit 500 tasks each"),
    Metric("puts of two clients", PER_S, 20, 50, "numbers"),
    Metric("chains of 100 dependent tasks", PER_S, 6, 12, "each takes the result of the one before; tasks"),
    Metric("placement groups made and removed", PER_S, 3, 8, "20 of one bundle at once, ready() of each"),
    Metric("actors created to first call", PER_S, 40, 100, "4 at once, killed afterwards"),
    Metric("items of a streaming generator", PER_S, 3, 6, "each item is read"),
    Metric("get of 10,000 references", PER_S, 3, 8, "references"),
    Metric("tasks with 10,000 references", PER_S, 10, 40, "as arguments; tasks"),
    Metric("50,000 tasks queued: submitted", PER_S, 3, 8, ""),
    Metric("50,000 tasks queued: done", PER_S, 12, 30, "from the first `.remote()` to the last result"),
    Metric("memory of all processes at the end", "MiB", 6, 12, "pages that several share count once"),
    Metric("shutdown", "s", 6, 20, ""),
)


def measure(m: Measuring, options: argparse.Namespace) -> None:
    """Takes every metric of one engine."""
    ray = m.ray
    start = time.perf_counter()
    m.init(CPUS)
    try:

        @ray.remote
        def nothing(*_args: Any) -> bytes:
            return b"ok"

        ray.get(nothing.remote())
        if m.wants("init to first result"):
            m.note("init to first result", time.perf_counter() - start)
        objects(m)
        tasks(m, nothing)
        actors(m, nothing)
        groups(m)
        many_references(m, nothing)
        queue(m, nothing, options.queued)
        if m.wants("memory of all processes at the end"):
            memory = pss_bytes(with_descendants(os.getpid())) / MIB
            m.note("memory of all processes at the end", memory)
    finally:
        start = time.perf_counter()
        ray.shutdown()
    if m.wants("shutdown"):
        m.note("shutdown", time.perf_counter() - start)


def objects(m: Measuring) -> None:
    """Putting and getting."""
    ray = m.ray
    small = ray.put(0)
    m.rate("get of a number", lambda: ray.get(small))
    m.rate("put of a number", lambda: ray.put(0))
    large = np.zeros(100 * MIB, dtype=np.uint8)
    m.rate("put of 100 MiB arrays", lambda: ray.put(large), 100 / 1024)
    medium = np.zeros(MIB, dtype=np.uint8)
    m.rate("put of 1 MiB", lambda: ray.put(medium))
    shared = ray.put(medium)
    m.rate("get of 1 MiB", lambda: ray.get(shared))


def tasks(m: Measuring, nothing: Any) -> None:
    """Tasks one by one, many at once, with data, and in a row."""
    ray = m.ray
    m.rate("tasks one by one", lambda: ray.get(nothing.remote()))
    m.rate("tasks in batches of 1,000", lambda: ray.get([nothing.remote() for _ in range(1000)]), 1000)
    shared = ray.put(np.zeros(MIB, dtype=np.uint8))
    m.rate("tasks with an array of 1 MiB", lambda: ray.get([nothing.remote(shared) for _ in range(100)]), 100)

    @ray.remote
    def array() -> np.ndarray:
        return np.zeros(MIB, dtype=np.uint8)

    m.rate("tasks returning 1 MiB", lambda: ray.get([array.remote() for _ in range(50)]), 50)

    def wait_one_by_one() -> None:
        rest = [nothing.remote() for _ in range(1000)]
        while rest:
            _, rest = ray.wait(rest)

    m.rate("wait on 1,000 references one by one", wait_one_by_one)

    def chain() -> None:
        ref = 0
        for _ in range(100):
            ref = nothing.remote(ref)
        ray.get(ref)

    m.rate("chains of 100 dependent tasks", chain, 100)

    @ray.remote
    def items(count: int) -> Iterator[int]:
        for number in range(count):  # noqa: UP028 - Ray sends to what a generator delegates to
            yield number

    def stream() -> None:
        for ref in items.options(num_returns="streaming").remote(1000):
            ray.get(ref)

    m.rate("items of a streaming generator", stream, 1000)


def actors(m: Measuring, nothing: Any) -> None:
    """Calls of all kinds of actors, and several clients at once."""
    ray = m.ray

    @ray.remote(num_cpus=0)
    class Actor:
        def nothing(self) -> bytes:
            return b"ok"

    @ray.remote(num_cpus=0)
    class AsyncActor:
        async def nothing(self) -> bytes:
            return b"ok"

    @ray.remote(num_cpus=0)
    class Client:
        def __init__(self, servers: list[Any]) -> None:
            self.servers = servers

        def calls(self, count: int) -> None:
            ray.get([server.nothing.remote() for server in self.servers for _ in range(count)])

        def tasks(self, count: int) -> None:
            ray.get([nothing.remote() for _ in range(count)])

        def puts(self, count: int) -> None:
            for _ in range(count):
                ray.put(0)

    def in_batches(actor: Any) -> Callable[[], Any]:
        ray.get(actor.nothing.remote())
        return lambda: ray.get([actor.nothing.remote() for _ in range(1000)])

    for kind, made in (("actor", Actor.remote()), ("async actor", AsyncActor.remote())):
        batch = in_batches(made)
        m.rate(f"{kind} calls one by one", lambda made=made: ray.get(made.nothing.remote()))  # type: ignore[misc]
        m.rate(f"{kind} calls in batches of 1,000", batch, 1000)
    threaded = Actor.options(max_concurrency=16).remote()
    m.rate("threaded actor calls in batches of 1,000", in_batches(threaded), 1000)

    servers = [Actor.remote() for _ in range(2)]
    clients = [Client.remote(servers) for _ in range(2)]
    ray.get([client.calls.remote(10) for client in clients])

    def at_once(method: str) -> Callable[[], Any]:
        return lambda: ray.get([getattr(client, method).remote(500) for client in clients])

    m.rate("calls from two actors to two", at_once("calls"), 2 * 2 * 500)
    m.rate("tasks of two clients", at_once("tasks"), 2 * 500)
    m.rate("puts of two clients", at_once("puts"), 2 * 500)

    def create() -> None:
        made = [Actor.remote() for _ in range(4)]
        ray.get([actor.nothing.remote() for actor in made])
        for actor in made:
            ray.kill(actor)

    m.rate("actors created to first call", create, 4)


def groups(m: Measuring) -> None:
    """Placement groups."""
    ray, util = m.ray, m.util

    def make_and_remove() -> None:
        made = [util.placement_group([{"CPU": 0.01}]) for _ in range(20)]
        ray.get([group.ready() for group in made])
        for group in made:
            util.remove_placement_group(group)

    m.rate("placement groups made and removed", make_and_remove, 20)


def many_references(m: Measuring, nothing: Any) -> None:
    """Ten thousand of them in one call."""
    ray = m.ray
    names = "get of 10,000 references", "tasks with 10,000 references"
    if not m.wants(*names):
        return
    many = [ray.put(number) for number in range(10_000)]
    m.rate(names[0], lambda: ray.get(many), len(many))
    m.rate(names[1], lambda: ray.get(nothing.remote(*many)))


def queue(m: Measuring, nothing: Any, count: int) -> None:
    """A long queue, once."""
    submitted, done = "50,000 tasks queued: submitted", "50,000 tasks queued: done"
    if not m.wants(submitted, done):
        return
    start = time.perf_counter()
    refs = [nothing.remote() for _ in range(count)]
    m.note(submitted, count / (time.perf_counter() - start))
    m.ray.get(refs)
    m.note(done, count / (time.perf_counter() - start))


def main() -> int:
    comparison = Comparison(__file__, __doc__, METRICS)
    comparison.parser.add_argument("--queued", type=int, default=50_000, help="tasks in the long queue")
    return comparison.run("engine", measure)


if __name__ == "__main__":
    sys.exit(main())
