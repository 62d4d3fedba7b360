"""Collective operations of two members on one node, through the public API. Prints one line of JSON.

    python scripts/bench/collectives.py                             # this engine
    python scripts/bench/collectives.py --against OTHER_PYTHON      # this engine, and how it compares to Ray with torch
    python scripts/bench/collectives.py --only allreduce            # some of it

Arrays are float32, in place. Each operation is checked on both members before it is timed; times are those of the
slower member.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from comparison import Comparison, Measuring, Metric
from processes import pss_bytes

WORLD = 2
TIMEOUT_S = 120.0
SIZES = {"4 B": 1, "1 MiB": 2**18, "100 MiB": 25 * 2**20}
"""Names, and numbers of elements."""
GOALS = {  # at least so many times Ray's, better so many times; by size
    "allreduce": ((4, 8), (2, 4), (2, 3)),
    "broadcast": ((4, 8), (2, 4), (1, 1.5)),
    "allgather": ((4, 8), (2, 4), (3, 6)),
    "reducescatter": ((4, 8), (2, 4), (3, 6)),
    "there and back": ((4, 8), (2, 4), (1, 1.5)),
}
UNITS = {"4 B": ("us", 1e6), "1 MiB": ("ms", 1e3), "100 MiB": ("ms", 1e3)}
METRICS = (
    Metric("group formed", "s", 8, 16, "by two members that are ready"),
    Metric("barrier", "us", 4, 8, ""),
    *(
        Metric(
            f"{operation} of {size}", UNITS[size][0], *goal, "`send`, `recv`" if "there" in operation else ""
        )
        for operation, goals in GOALS.items()
        for size, goal in zip(SIZES, goals, strict=True)
    ),
    Metric("memory of the members", "MiB", 1.6, 3, "pages that several share count once"),
    Metric("a member killed: known", "s", 1, 4, "to the error of the other, which waits in an allreduce"),
)


class Member:
    """One of the two; the same whichever engine carries it."""

    def pid(self) -> int:
        return os.getpid()

    def join(self, module: str, rank: int, group: str) -> None:
        """Forms the group."""
        self.collective: Any = importlib.import_module(f"{module}.util.collective")
        self.rank, self.group = rank, group
        self.collective.init_collective_group(WORLD, rank, "gloo", group)
        self.collective.barrier(group_name=group)

    def _prepared(
        self, operation: str, count: int
    ) -> tuple[Callable[[], None], np.ndarray, list[np.ndarray]]:
        """The operation, and its arrays."""
        c, rank, group = self.collective, self.rank, self.group
        mine = np.zeros(count, np.float32)
        parts = [np.zeros(count, np.float32) for _ in range(WORLD)]

        def there_and_back() -> None:
            for sender in range(WORLD):
                if sender == rank:
                    c.send(mine, dst_rank=1 - rank, group_name=group)
                else:
                    c.recv(mine, src_rank=sender, group_name=group)

        operations: dict[str, Callable[[], None]] = {
            "barrier": lambda: c.barrier(group_name=group),
            "allreduce": lambda: c.allreduce(mine, group_name=group),
            "broadcast": lambda: c.broadcast(mine, src_rank=0, group_name=group),
            "allgather": lambda: c.allgather(parts, mine, group_name=group),
            "reducescatter": lambda: c.reducescatter(mine, parts, group_name=group),
            "there and back": there_and_back,
        }
        return operations[operation], mine, parts

    def check(self, operation: str, count: int) -> None:
        """Does it once, with numbers that show whether it does what it should."""
        run, mine, parts = self._prepared(operation, count)
        ramp = (np.arange(count) % 1000).astype(np.float32)
        mine[:] = ramp + 1000 * self.rank
        for rank, part in enumerate(parts):
            part[:] = ramp + 1000 * self.rank + 100 * rank
        run()
        right = {
            "barrier": lambda: True,
            "allreduce": lambda: np.array_equal(mine, 2 * ramp + 1000),
            "broadcast": lambda: np.array_equal(mine, ramp),
            "allgather": lambda: all(np.array_equal(part, ramp + 1000 * n) for n, part in enumerate(parts)),
            "reducescatter": lambda: np.array_equal(mine, 2 * ramp + 1000 + 200 * self.rank),
            "there and back": lambda: np.array_equal(mine, ramp),
        }
        if not right[operation]():
            raise AssertionError(f"a wrong {operation}")

    def seconds(self, operation: str, count: int, times: int, rounds: int) -> list[float]:
        """What it took, in each round."""
        run, _, _ = self._prepared(operation, count)
        run()
        found = []
        for _ in range(rounds):
            start = time.perf_counter()
            for _ in range(times):
                run()
            found.append((time.perf_counter() - start) / times)
        return found

    def until_error(self) -> float:
        """The time at which an allreduce raises."""
        try:
            self.collective.allreduce(np.zeros(1, np.float32), group_name=self.group)
        except Exception:
            return time.time()
        raise AssertionError("no error")


class Group:
    """Two actors that are ready.

    Args:
        m: of their engine.
    """

    _names = itertools.count()

    def __init__(self, m: Measuring) -> None:
        self.ray, self._module = m.ray, m.module
        actor = m.ray.remote(num_cpus=0)(Member)
        self.members = [actor.remote() for _ in range(WORLD)]
        self.pids = self.all("pid")

    def all(self, method: str, *arguments: Any) -> list[Any]:
        """What each answers."""
        calls = [getattr(member, method).remote(*arguments) for member in self.members]
        found: list[Any] = self.ray.get(calls, timeout=TIMEOUT_S)
        return found

    def formed(self) -> float:
        """Seconds until the group is formed."""
        start, name = time.perf_counter(), f"bench {next(self._names)}"
        joined = [member.join.remote(self._module, rank, name) for rank, member in enumerate(self.members)]
        self.ray.get(joined, timeout=TIMEOUT_S)
        return time.perf_counter() - start

    def seconds(self, m: Measuring, operation: str, count: int) -> float:
        """What an operation takes the slower member."""
        self.all("check", operation, count)
        [once], _ = self.all("seconds", operation, count, 3, 1)
        times = max(1, min(20_000, int(m.round_s / once)))
        rounds = self.all("seconds", operation, count, times, m.rounds)
        return statistics.median(map(max, *rounds))

    def killed(self) -> float:
        """Seconds until a member that waits has an error, when the other is killed."""
        self.formed()
        waits = self.members[0].until_error.remote()
        time.sleep(1.0)
        at = time.time()
        os.kill(self.pids[1], signal.SIGKILL)
        known: float = self.ray.get(waits, timeout=TIMEOUT_S)
        return known - at


def measure(m: Measuring, _options: argparse.Namespace) -> None:
    """Takes every metric of one engine."""
    m.init(WORLD)
    group = Group(m)
    m.note("group formed", group.formed())
    m.measure("barrier", lambda: 1e6 * group.seconds(m, "barrier", 1))
    for operation, (size, count) in itertools.product(GOALS, SIZES.items()):
        name, factor = f"{operation} of {size}", UNITS[size][1]
        m.measure(name, functools.partial(_scaled, factor, group, m, operation, count))
    m.measure("memory of the members", lambda: pss_bytes(group.pids) / 2**20)
    m.measure("a member killed: known", lambda: Group(m).killed())
    m.ray.shutdown()


def _scaled(factor: float, group: Group, m: Measuring, operation: str, count: int) -> float:
    return factor * group.seconds(m, operation, count)


def main() -> int:
    return Comparison(__file__, __doc__, METRICS).run("collectives", measure)


if __name__ == "__main__":
    sys.exit(main())
