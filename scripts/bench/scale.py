"""How far one machine goes: `python scripts/bench/scale.py [--only NAME]`. Prints one line of JSON.

Measurements: tasks, actors, objects, returns, array.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from figures import Figures, run
from processes import forget_peak, peak_rss_bytes, pss_bytes, rss_bytes, with_descendants

import runtime as ray

CPUS = 2
STORE_MARGIN_BYTES = 256 * 2**20
WARM_UP_TASKS = 1000
PATIENCE_S = 600.0


@ray.remote
def nothing(*_args: object) -> None:
    """No work."""


@ray.remote
def hold(folder: str, number: int) -> None:
    """Says that it has a CPU, and keeps it until it is told to go on."""
    Path(folder, str(number)).touch()
    wait_for(Path(folder, "released"))


def wait_for(*paths: Path) -> None:
    """Until all of these are there."""
    end = time.monotonic() + PATIENCE_S
    while not all(path.exists() for path in paths):
        if time.monotonic() > end:
            raise TimeoutError(f"none of {paths} is there after {PATIENCE_S} s")
        time.sleep(0.01)


@ray.remote(num_cpus=0)
class Actor:
    """No work either."""

    def nothing(self) -> None:
        """Answers."""


@contextmanager
def cluster(**options: int) -> Iterator[None]:
    """A local one, warm."""
    ray.init(num_cpus=CPUS, log_to_driver=False, logging_level="ERROR", **options)
    try:
        ray.get([nothing.remote() for _ in range(WARM_UP_TASKS)])
        yield
    finally:
        ray.shutdown()


def tasks(figures: Figures, count: int) -> None:
    """Many tasks in the queue at once."""
    with cluster(), tempfile.TemporaryDirectory() as folder:
        holders = [hold.remote(folder, number) for number in range(CPUS)]
        wait_for(*(Path(folder, str(number)) for number in range(CPUS)))
        gc.collect()
        before = rss_bytes()
        forget_peak()
        start = time.perf_counter()
        refs = [nothing.remote() for _ in range(count)]
        submitted = time.perf_counter() - start
        queued_bytes = peak_rss_bytes() - before
        Path(folder, "released").touch()
        ray.get(holders)
        start = time.perf_counter()
        ray.get(refs)
        done = time.perf_counter() - start
        figures.add(
            f"{count:,} tasks: a queued task",
            queued_bytes / count,
            "bytes",
            "growth of the driver's peak resident memory while all are queued, per task",
            at_most=1024,
        )
        figures.add(
            f"{count:,} tasks: peak memory of the driver",
            peak_rss_bytes() / 2**20,
            "MiB",
            "everything that the driver has, the interpreter and the results too",
        )
        figures.add(
            f"{count:,} tasks: queued", count / submitted, "per second", "`.remote()` while no worker is free"
        )
        figures.add(
            f"{count:,} tasks: queue worked off", count / done, "per second", "from the first worker on"
        )
        del refs
        gc.collect()
        start = time.perf_counter()
        ray.get([nothing.remote() for _ in range(count)])
        figures.add(
            f"{count:,} tasks: queued and done",
            time.perf_counter() - start,
            "s",
            "from the first `.remote()` to the last result, workers free from the start",
        )


def actors(figures: Figures, count: int) -> None:
    """Many live actors."""
    with cluster():
        before = pss_bytes(with_descendants(os.getpid()))
        start = time.perf_counter()
        made = [Actor.remote() for _ in range(count)]
        ray.get([actor.nothing.remote() for actor in made])
        seconds = time.perf_counter() - start
        figures.add(
            f"{count:,} actors: created to first call",
            seconds,
            "s",
            "all are created, and each has answered once",
        )
        grown = pss_bytes(with_descendants(os.getpid())) - before
        figures.add(
            f"{count:,} actors: memory of one",
            grown / count / 2**20,
            "MiB",
            "growth of the memory of all processes (shared pages once), per actor",
        )
        start = time.perf_counter()
        ray.get([actor.nothing.remote() for actor in made])
        figures.add(
            f"{count:,} actors: one call of each",
            time.perf_counter() - start,
            "s",
            "a further call of each, all at once",
        )


def objects(figures: Figures, count: int) -> None:
    """Many objects with one get."""
    array = np.zeros(128 * 2**10, dtype=np.uint8)
    with cluster(object_store_memory=2 * count * array.nbytes + STORE_MARGIN_BYTES):
        small = [ray.put(number) for number in range(count)]
        start = time.perf_counter()
        values = ray.get(small)
        seconds = time.perf_counter() - start
        if values != list(range(count)):
            raise ValueError("the values are not those that were put")
        figures.add(f"{count:,} numbers: one get", seconds, "s", "values that their owner keeps itself")
        large = [ray.put(array) for _ in range(count)]
        start = time.perf_counter()
        arrays = ray.get(large)
        seconds = time.perf_counter() - start
        if sum(found.nbytes for found in arrays) != count * array.nbytes:
            raise ValueError("the arrays are not those that were put")
        figures.add(
            f"{count:,} arrays of 128 KiB: one get", seconds, "s", "mapped from the object store, not copied"
        )
        del values, arrays


def returns(figures: Figures, count: int) -> None:
    """One task with many results."""

    @ray.remote(num_returns=count)
    def many() -> range:
        return range(count)

    with cluster():
        ray.get(many.remote())
        start = time.perf_counter()
        values = ray.get(many.remote())
        seconds = time.perf_counter() - start
        if values != list(range(count)):
            raise ValueError("the values are not those that were returned")
        figures.add(f"a task with {count:,} returns", seconds, "s", "submitted, run, and all results read")


def array(figures: Figures, size_gib: float) -> None:
    """One huge array."""

    @ray.remote
    def total(values: np.ndarray) -> int:
        return int(values.sum())

    count = int(size_gib * 2**30) // 8
    with cluster(object_store_memory=count * 8 + STORE_MARGIN_BYTES):
        values = np.arange(count, dtype=np.int64)
        expected = count * (count - 1) // 2
        start = time.perf_counter()
        ref = ray.put(values)
        put_s = time.perf_counter() - start
        found = ray.get(total.remote(ref))
        seconds = time.perf_counter() - start
        if found != expected:
            raise ValueError(f"the sum is {found}, not {expected}")
        size = f"{size_gib:g} GiB array"
        figures.add(f"{size}: put", put_s, "s", "copied into memory of the store that nobody has touched yet")
        figures.add(f"{size}: put, passed to a task, summed", seconds, "s", "the sum is checked")
        start = time.perf_counter()
        int(values.sum())
        figures.add(
            f"{size}: summed here", time.perf_counter() - start, "s", "the same sum without the engine"
        )
        del ref


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="the measurements whose name contains this")
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--actors", type=int, default=1000)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--returns", type=int, default=3000)
    parser.add_argument("--gib", type=float, default=4.0, help="size of the array")
    options = parser.parse_args()
    figures = Figures("scale")
    return run(
        figures,
        {
            "tasks": lambda: tasks(figures, options.tasks),
            "actors": lambda: actors(figures, options.actors),
            "objects": lambda: objects(figures, options.objects),
            "returns": lambda: returns(figures, options.returns),
            "array": lambda: array(figures, options.gib),
        },
        options.only,
    )


if __name__ == "__main__":
    sys.exit(main())
