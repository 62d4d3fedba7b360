"""Tasks, actors, generators and references inside values, mixed by a seed, while workers and nodes are killed: each
value is what it must be, nothing waits for ever, and nothing is left at the end.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest

import runtime as ray
from runtime.cluster_utils import Cluster
from runtime.exceptions import OwnerDiedError, RayTaskError
from runtime.util.state import list_actors, list_objects
from tests.polling import eventually

DEADLINE_S = 60
SECONDS = float(os.environ.get("MIXED_LOAD_SECONDS", "6"))
"""A longer run finds more: `MIXED_LOAD_SECONDS=300 scripts/test tests/integration/test_mixed_load.py`."""
NODE: dict[str, Any] = {"num_cpus": 2, "resources": {"worker": 1}, "object_store_memory": 80 * 2**20}


def array(value: int, large: bool) -> Any:
    return np.full(40_000 if large else 5, value)


def number(value: Any) -> int:
    return int(value[0]) if isinstance(value, np.ndarray) else int(value)


@ray.remote(max_retries=-1)
def leaf(value: int, large: bool) -> Any:
    return array(value, large)


@ray.remote(max_retries=-1)
def add(a: Any, b: Any, large: bool) -> Any:
    return array(number(a) + number(b), large)


@ray.remote(max_retries=-1)
def total(refs: list[Any]) -> int:
    return sum(number(value) for value in ray.get(refs))


@ray.remote(max_retries=-1)
def spawn(value: int, large: bool) -> int:
    return number(ray.get(add.remote(leaf.remote(value, large), leaf.remote(1, large), large)))


@ray.remote(max_retries=-1)
def boxed(value: int, large: bool) -> list[Any]:
    return [ray.put(array(value, large)), leaf.remote(value, large)]


@ray.remote(max_retries=-1)
def stream(value: int, count: int, large: bool) -> Iterator[Any]:
    for i in range(count):
        yield array(value + i, large)


@ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0, resources={"worker": 0.1})
class Adder:
    def __init__(self, base: int) -> None:
        self.base = base

    def plus(self, value: Any, large: bool) -> Any:
        return array(number(value) + self.base, large)

    def stream(self, value: int, count: int, large: bool) -> Iterator[Any]:
        for i in range(count):
            yield array(value + i, large)


class Load:
    """What one seed does, and the references it holds with what they must be."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.held: list[tuple[Any, int]] = []
        self.actors = [(Adder.remote(base), base) for base in range(3)]

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        next_kill = time.monotonic() + 1
        while time.monotonic() < end:
            self.step()
            while len(self.held) > 60 or (self.held and self.rng.random() < 0.3):
                self.check(*self.held.pop(self.rng.randrange(len(self.held))))
            if time.monotonic() > next_kill:
                self.kill()
                next_kill = time.monotonic() + 2 * self.rng.random()
        for ref, expected in self.held:
            self.check(ref, expected)

    def check(self, ref: Any, expected: int) -> None:
        assert number(ray.get(ref, timeout=DEADLINE_S)) == expected

    def step(self) -> None:
        kind = self.rng.choice(("leaf", "put", "add", "total", "spawn", "boxed", "stream", "actor"))
        value, large = self.rng.randrange(1000), self.rng.random() < 0.5
        (a, a_value), (b, b_value) = self.rng.choices(self.held, k=2) if self.held else ((1, 1), (2, 2))
        if kind == "leaf":
            self.held.append((leaf.remote(value, large), value))
        elif kind == "put":
            self.held.append((ray.put(array(value, large)), value))
        elif kind == "add":
            self.held.append((add.remote(a, b, large), a_value + b_value))
        elif kind == "total" and self.held:
            self.held.append((total.remote([a, b]), a_value + b_value))
        elif kind == "spawn":
            self.held.append((spawn.remote(value, large), value + 1))
        elif kind == "boxed":
            self.open_box(value, large)
        elif kind == "stream":
            self.read_stream(value, large)
        elif kind == "actor":
            actor, base = self.rng.choice(self.actors)
            self.held.append((actor.plus.remote(a, large), a_value + base))

    def open_box(self, value: int, large: bool) -> None:
        """What a worker owns may go with it, and is then an error, never a wrong value."""
        for ref in ray.get(boxed.remote(value, large), timeout=DEADLINE_S):
            try:
                self.check(total.remote([ref]), value)
            except OwnerDiedError:
                continue
            except RayTaskError as error:
                if "OwnerDiedError" not in str(error):
                    raise

    def read_stream(self, value: int, large: bool) -> None:
        count = self.rng.randrange(1, 6)
        wanted = self.rng.choice((count, count, 1))
        source = self.rng.choice((stream, self.actors[0][0].stream))
        items = source.options(_generator_backpressure_num_objects=2).remote(value, count, large)
        for i in range(wanted):
            ready, _ = ray.wait([items], timeout=DEADLINE_S)
            assert ready
            self.held.append((next(items), value + i))

    def kill(self) -> None:
        victim = self.rng.choice(self.cluster.worker_nodes)
        if self.rng.random() < 0.3:
            self.cluster.remove_node(victim, allow_graceful=False)
            self.cluster.add_node(wait=False, **NODE)
            return
        try:
            agent = psutil.Process(victim.pid)
            workers = [process for process in agent.children(recursive=True) if process.ppid() != agent.pid]
            if workers:
                self.rng.choice(workers).kill()
        except psutil.NoSuchProcess:
            pass  # it has just ended by itself


@pytest.fixture(scope="module")
def cluster(no_leaks: None) -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={**NODE, "resources": {}})
    try:
        for _ in range(2):
            made.add_node(**NODE)
        ray.init(address=made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.mark.timeout(180 + 2 * SECONDS)
@pytest.mark.parametrize("seed", [1])
def test_values_are_right_and_nothing_is_left(cluster: Cluster, seed: int) -> None:
    load = Load(cluster, seed)
    load.run(SECONDS)
    del load
    assert eventually(
        lambda: not list_objects(limit=10_000) and not list_actors(filters=[("state", "!=", "DEAD")])
    )
    assert eventually(lambda: ray.available_resources().get("CPU") == ray.cluster_resources().get("CPU"))
