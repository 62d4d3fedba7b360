"""A random actor of a random compiled graph is killed at a random moment, again and again.

`--graph-kills 500 --timeout 1800 -s` does it that often and prints how soon the driver knew.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import statistics
import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.polling import eventually
from tests.under_test import NAME, exceptions, ray

dag: Any = importlib.import_module(f"{NAME}.dag")
pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0)
class Stage:
    def pid(self) -> int:
        return os.getpid()

    def work(self, *values: Any) -> Any:
        return values[0]

    def left(self) -> list[str]:
        """What is left of graphs here."""
        links = []
        for name in os.listdir("/proc/self/fd"):
            try:
                links.append(os.readlink(f"/proc/self/fd/{name}"))
            except FileNotFoundError:
                pass  # of the listing itself
        threads = [thread.name for thread in threading.enumerate() if "graph" in thread.name]
        return threads + [link for link in links if "clusterctl-channel" in link]


def graph_of(rng: random.Random, stages: list[Any]) -> Any:
    with dag.InputNode() as value:
        nodes = [value]
        for stage in rng.sample(stages, len(stages)):
            nodes.append(stage.work.bind(*rng.sample(nodes, rng.randint(1, min(2, len(nodes))))))
        return dag.MultiOutputNode(nodes[1:]).experimental_compile()


def execute_forever(rng: random.Random, graph: Any, value: Any) -> None:
    while True:
        for refs in [graph.execute(value) for _ in range(rng.randint(1, 4))]:
            ray.get(refs, timeout=60)


def killed_once(rng: random.Random, stages: list[Any]) -> tuple[Any, float]:
    """Executes a graph of these actors until one of them is killed. Returns that one, and the seconds until the driver
    knew."""
    graph = graph_of(rng, stages)
    value = rng.choice((1, np.ones(30_000)))
    victim = rng.choice(stages)
    pid = ray.get(victim.pid.remote())
    killed_at: list[float] = []

    def kill() -> None:
        killed_at.append(time.monotonic())
        os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(rng.uniform(0, 0.03), kill)
    timer.start()
    with pytest.raises(exceptions.ActorDiedError, match=victim._actor_id.hex()):
        execute_forever(rng, graph, value)
    known_s = time.monotonic() - killed_at[0]
    timer.join()
    graph.teardown()
    return victim, known_s


def test_actors_are_killed_at_random(request: pytest.FixtureRequest) -> None:
    rng = random.Random(18)
    known_s = []
    stages = [Stage.remote() for _ in range(4)]
    for _ in range(request.config.getoption("--graph-kills")):
        victim, seconds = killed_once(rng, stages)
        known_s.append(seconds)
        stages.remove(victim)
        for survivor in stages:
            assert eventually(lambda survivor=survivor: not ray.get(survivor.left.remote()), 20), ray.get(
                survivor.left.remote()
            )
        stages.append(Stage.remote())
    assert eventually(lambda: not _own_links())
    print(
        f"known after {statistics.median(known_s) * 1000:.1f} ms (median), {max(known_s) * 1000:.1f} ms (worst)"
    )


def _own_links() -> list[str]:
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            pass
    return [link for link in links if "clusterctl-channel" in link]
