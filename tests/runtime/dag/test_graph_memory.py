"""A compiled graph that is executed for long needs no more memory and descriptors than in the beginning.

`--graph-minutes 10 --timeout 900 -s` does it that long and prints what was used.
"""

from __future__ import annotations

import importlib
import os
import random
import time
from typing import Any

import numpy as np
import pytest

from tests.polling import eventually
from tests.under_test import NAME, ray

dag: Any = importlib.import_module(f"{NAME}.dag")
pytestmark = pytest.mark.usefixtures("session")
MOST_MORE_BYTES = 16 << 20
"""What a heap may grow by without a leak. 20 bytes for each execution of ten minutes are more."""


def used() -> tuple[int, int]:
    """The memory of this process in bytes, and its open descriptors."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))


@ray.remote(num_cpus=0)
class Stage:
    def work(self, *values: Any) -> Any:
        return values[0]

    def fail(self, _value: Any) -> Any:
        raise ValueError("as it should")

    def used(self) -> tuple[int, int]:
        return used()


def burst(rng: random.Random, graph: Any) -> int:
    """Some executions, more than the channels hold at times. Some results are dropped. Returns how many."""
    values = [rng.choice((1, "text", (1, 2), np.ones(30_000))) for _ in range(rng.randint(1, 25))]
    executions = [(value, graph.execute(value)) for value in values]
    for value, (good, bad) in executions:
        if rng.random() < 0.9:
            assert type(ray.get(good, timeout=60)) is type(value)
        if rng.random() < 0.2:
            with pytest.raises(ValueError, match="as it should"):
                ray.get(bad, timeout=60)
    return len(values)


def test_memory_is_flat(request: pytest.FixtureRequest) -> None:
    rng = random.Random(18)
    first, second = stages = [Stage.remote() for _ in range(2)]
    with dag.InputNode() as value:
        graph = dag.MultiOutputNode(
            [second.work.bind(first.work.bind(value), value), first.fail.bind(value)]
        ).experimental_compile()

    def all_used() -> list[tuple[int, int]]:
        return [used(), *ray.get([stage.used.remote() for stage in stages])]

    for _ in range(40):
        burst(rng, graph)
    before, executions = all_used(), 0
    ends = time.monotonic() + 60 * request.config.getoption("--graph-minutes")
    while time.monotonic() < ends:
        executions += burst(rng, graph)
    print(f"{executions} executions; bytes and descriptors of driver and actors: {before} -> {all_used()}")
    for process, (size_bytes, descriptors) in enumerate(before):
        assert eventually(
            lambda at=process, most=size_bytes: all_used()[at][0] < most + MOST_MORE_BYTES, 20
        ), before
        assert eventually(lambda at=process, most=descriptors: all_used()[at][1] <= most + 2, 20), before
    graph.teardown()
