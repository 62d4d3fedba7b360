"""Compiled graphs whose actors are on several nodes."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.under_test import NAME, exceptions, ray

cluster_utils: Any = importlib.import_module(f"{NAME}.cluster_utils")
dag: Any = importlib.import_module(f"{NAME}.dag")


@pytest.fixture
def cluster() -> Iterator[Any]:
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=1, resources={"other": 1})
    ray.init(address=made.address)
    yield made
    ray.shutdown()
    made.shutdown()


@ray.remote(num_cpus=0)
class Stage:
    def add(self, value: Any) -> Any:
        return value + 1

    def pid(self) -> int:
        return os.getpid()

    def node(self) -> str:
        found: str = ray.get_runtime_context().get_node_id()
        return found


@pytest.mark.usefixtures("cluster")
def test_values_errors_and_deaths_cross_nodes() -> None:
    here, last = Stage.remote(), Stage.remote()
    there = Stage.options(resources={"other": 0.1}).remote()
    assert ray.get(here.node.remote()) != ray.get(there.node.remote())
    with dag.InputNode() as value:
        graph = last.add.bind(there.add.bind(here.add.bind(value))).experimental_compile()
    assert ray.get(graph.execute(1)) == 4
    refs = [graph.execute(np.full(300_000, number)) for number in range(25)]  # more than the channels hold
    assert [ray.get(ref)[-1] for ref in refs] == [number + 3 for number in range(25)]
    with pytest.raises(TypeError):
        ray.get(graph.execute("text"))
    os.kill(ray.get(there.pid.remote()), signal.SIGKILL)
    with pytest.raises(exceptions.ActorDiedError, match=there._actor_id.hex()):
        ray.get(graph.execute(1), timeout=60)
    graph.teardown()
    assert ray.get([here.add.remote(1), last.add.remote(1)]) == [2, 2]
