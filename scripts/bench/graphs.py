"""Graphs and compiled graphs, through the public API. Prints one line of JSON.

    python scripts/bench/graphs.py                                  # this engine
    python scripts/bench/graphs.py --against OTHER_PYTHON           # this engine, and how it compares to Ray there
    python scripts/bench/graphs.py --only "chain of 3"              # some of it

Stages are actors that add one to a number, or to the first element of an array of 10 MB. Each graph's answer is
checked before it is timed. Pipelined: 8 executions on their way.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from comparison import PER_S, Comparison, Measuring, Metric

CPUS = 2
DEPTH = 8
ELEMENTS = 10 * 10**6 // 8
TIMEOUT_S = 60.0
END_S = 20.0
METRICS = (
    Metric("nodes bound", PER_S, 1, 4, ""),
    Metric("graph of 3 tasks", PER_S, 10, 25, "two, and one of their results"),
    Metric("graph of 3 actor calls", PER_S, 10, 25, "a chain"),
    Metric("graph of 3 actor calls, pipelined", PER_S, 10, 25, ""),
    Metric("compiled one actor: to first result", "s", 8, 16, "`experimental_compile`, one execution"),
    Metric("compiled one actor", PER_S, 1.1, 1.5, "one by one"),
    Metric("compiled one actor, pipelined", PER_S, 1.5, 2, ""),
    Metric("compiled chain of 3", PER_S, 2.5, 4, "one by one"),
    Metric("compiled chain of 3, pipelined", PER_S, 2.5, 4, ""),
    Metric("compiled chain of 3: teardown", "s", 1, 2, ""),
    Metric("compiled fan-out to 3", PER_S, 2.5, 4, "one by one"),
    Metric("compiled chain of 3, asyncio", PER_S, 2, 3, "`execute_async`, one by one"),
    Metric("compiled chain of 3, asyncio, pipelined", PER_S, 2, 3, ""),
    Metric("compiled one actor: an array of 10 MB", "ms", 1, 2, "there and back"),
    Metric("compiled chain of 3: an array of 10 MB", "ms", 1.3, 2, "through all of it"),
    Metric("a member killed at work: known", "s", 1, 4, "to the error of the caller who waits"),
    Metric("a member killed idle: known", "s", 1, 4, "to the error of the next call"),
)


class Stage:
    """An actor of every graph here."""

    def pid(self) -> int:
        return os.getpid()

    def add(self, value: int) -> int:
        return value + 1

    def add_array(self, array: np.ndarray) -> np.ndarray:
        copied = np.array(array)
        copied[0] += 1
        return copied

    def slow(self, value: int) -> int:
        time.sleep(TIMEOUT_S)
        return value


class Graphs:
    """Graphs of one engine.

    Args:
        measuring: of it.
    """

    def __init__(self, measuring: Measuring) -> None:
        self.measuring = measuring
        self.ray = measuring.ray
        self.dag: Any = importlib.import_module(f"{measuring.module}.dag")
        self.actor: Any = self.ray.remote(num_cpus=0)(Stage)

    def stages(self, count: int) -> list[Any]:
        """New actors that have answered."""
        made = [self.actor.remote() for _ in range(count)]
        self.ray.get([stage.pid.remote() for stage in made])
        return made

    def chain(self, stages: list[Any], method: str = "add") -> Any:
        """A call of each, with the result of the one before."""
        with self.dag.InputNode() as node:
            for stage in stages:
                node = getattr(stage, method).bind(node)
        return node

    def fan_out(self, stages: list[Any]) -> Any:
        """A call of each with the input."""
        with self.dag.InputNode() as node:
            return self.dag.MultiOutputNode([stage.add.bind(node) for stage in stages])

    def checked(self, graph: Any, answer: Any) -> Any:
        """The graph, once it has given the answer for 5."""
        found = self.ray.get(graph.execute(5), timeout=TIMEOUT_S)
        if found != answer:
            raise AssertionError(f"{found!r} in place of {answer!r}")
        return graph

    # ------------------------------------------------------------ what is measured

    def plain(self) -> None:
        """Graphs that are not compiled."""
        m, ray = self.measuring, self.ray
        total = ray.remote(num_cpus=0)(_total)
        stages = self.stages(3)
        with self.dag.InputNode() as node:
            join = self.checked(total.bind(total.bind(node, 1), total.bind(node, 2)), 13)
        chain = self.checked(self.chain(stages), 8)
        m.rate("nodes bound", lambda: [stages[0].add.bind(1) for _ in range(100)], 100)
        m.rate("graph of 3 tasks", lambda: ray.get(join.execute(5)))
        m.rate("graph of 3 actor calls", lambda: ray.get(chain.execute(5)))
        m.rate(
            "graph of 3 actor calls, pipelined",
            lambda: ray.get([chain.execute(5) for _ in range(DEPTH)]),
            DEPTH,
        )

    def compiled(self) -> None:
        """Numbers through compiled graphs."""
        m, ray = self.measuring, self.ray
        stages = self.stages(3)
        m.note("compiled one actor: to first result", self._chained("compiled one actor", stages[:1])[0])
        m.note("compiled chain of 3: teardown", self._chained("compiled chain of 3", stages)[1])
        graph = self.checked(self.fan_out(stages).experimental_compile(), [6, 6, 6])
        m.rate("compiled fan-out to 3", lambda: ray.get(graph.execute(5)))
        torn_down(graph)

    def _chained(self, name: str, stages: list[Any]) -> tuple[float, float]:
        """Returns the seconds to the first result, and those of the end."""
        m, ray = self.measuring, self.ray
        start = time.perf_counter()
        graph = self.checked(self.chain(stages).experimental_compile(), 5 + len(stages))
        first_s = time.perf_counter() - start
        m.rate(name, lambda: ray.get(graph.execute(5)))
        m.rate(
            f"{name}, pipelined",
            lambda: [ray.get(one) for one in [graph.execute(5) for _ in range(DEPTH)]],
            DEPTH,
        )
        return first_s, torn_down(graph)

    def asyncio(self) -> None:
        """The chain in an event loop."""
        names = {1: "compiled chain of 3, asyncio", DEPTH: "compiled chain of 3, asyncio, pipelined"}
        if not self.measuring.wants(*names.values()):
            return
        asyncio.run(self._asyncio(names))

    async def _asyncio(self, names: dict[int, str]) -> None:
        m = self.measuring
        graph = self.chain(self.stages(3)).experimental_compile(enable_asyncio=True)
        for depth, name in names.items():
            rounds = []
            for _ in range(m.rounds):
                done, start = 0, time.perf_counter()
                while time.perf_counter() - start < m.round_s:
                    async with asyncio.timeout(TIMEOUT_S):
                        for future in [await graph.execute_async(5) for _ in range(depth)]:
                            if await future != 8:
                                raise AssertionError("a wrong answer")
                    done += depth
                rounds.append(done / (time.perf_counter() - start))
            m.note(name, statistics.median(rounds))
        torn_down(graph)

    def killed(self, busy: bool) -> float:
        """The middle of three is killed: at work with a caller waiting, or idle before the next call. Returns the
        seconds until the caller has an error."""
        stages = self.stages(3)
        pid = self.ray.get(stages[1].pid.remote())
        with self.dag.InputNode() as node:
            middle = stages[1].slow if busy else stages[1].add
            node = stages[2].add.bind(middle.bind(stages[0].add.bind(node)))
        graph = node.experimental_compile()
        killed_at = []

        def kill() -> None:
            killed_at.append(time.perf_counter())
            os.kill(pid, signal.SIGKILL)

        if busy:
            threading.Timer(1.0, kill).start()
        else:
            self.checked(graph, 8)
            kill()
        try:
            self.ray.get(graph.execute(5), timeout=TIMEOUT_S)
        except Exception:
            known_s = time.perf_counter() - killed_at[0]
        else:
            raise AssertionError("no error")
        torn_down(graph)
        return known_s

    def arrays(self) -> None:
        """An array of 10 MB through compiled graphs. Last, since Ray does not always end them."""
        for name, count in (("compiled one actor", 1), ("compiled chain of 3", 3)):
            self.measuring.measure(f"{name}: an array of 10 MB", functools.partial(self._array, count))

    def _array(self, count: int) -> float:
        """Milliseconds through a chain of so many."""
        array = np.zeros(ELEMENTS)
        stages = self.stages(count)
        graph = self.chain(stages, "add_array").experimental_compile(_buffer_size_bytes=12 * 10**6)

        def once() -> None:
            found = self.ray.get(graph.execute(array), timeout=TIMEOUT_S)
            if found[0] != count or found.shape != array.shape:
                raise AssertionError("a wrong array")

        try:
            return 1000 / self.measuring.rate_of(once)
        finally:
            torn_down(graph)
            for stage in stages:  # Ray's `shutdown` waits for graphs that did not end
                self.ray.kill(stage)


def _total(*values: int) -> int:
    return sum(values)


def torn_down(graph: Any) -> float:
    """Seconds that `teardown` took."""
    return bounded(graph.teardown)


def bounded(end: Callable[[], None]) -> float:
    """Seconds that a call took which may never return; no more than `END_S` are waited for."""
    start = time.perf_counter()
    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    thread.join(END_S)
    return time.perf_counter() - start


def measure(m: Measuring, _options: argparse.Namespace) -> None:
    """Takes every metric of one engine."""
    m.init(CPUS)
    graphs = Graphs(m)
    for part in (graphs.plain, graphs.compiled, graphs.asyncio):
        m.guard(part)
    m.measure("a member killed at work: known", lambda: graphs.killed(True))
    m.measure("a member killed idle: known", lambda: graphs.killed(False))
    graphs.arrays()
    bounded(m.ray.shutdown)


def main() -> NoReturn:
    status = Comparison(__file__, __doc__, METRICS).run("graphs", measure)
    os._exit(status)  # what did not end in time would keep the process


if __name__ == "__main__":
    main()
