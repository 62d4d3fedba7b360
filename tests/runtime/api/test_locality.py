"""Tasks go to their arguments: where most of the bytes lie, if there is room."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.polling import eventually
from tests.under_test import NAME, ray

Cluster: Any = importlib.import_module(f"{NAME}.cluster_utils").Cluster
SIZE = 50 * 10**6


@pytest.fixture(scope="module", autouse=True)
def cluster(no_leaks: None) -> Iterator[Any]:
    """Two nodes with a CPU each; the driver is on the first one."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"head": 1}})
    made.add_node(num_cpus=1, resources={"other": 1})
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@ray.remote
def make() -> Any:
    return np.zeros(SIZE, np.uint8)


@ray.remote
def where(_array: Any) -> str:
    return str(ray.get_runtime_context().get_node_id())


def node_with(resource: str) -> str:
    [node_id] = [node["NodeID"] for node in ray.nodes() if resource in node["Resources"]]
    return str(node_id)


@pytest.mark.parametrize("resource", ["other", "head"])
def test_a_task_runs_where_its_argument_was_made_a_moment_ago(resource: str) -> None:
    """The maker's worker, which had the node's only CPU, is idle by then. What is known of another node may be late, so
    the task may go elsewhere now and then."""
    node_id = node_with(resource)

    def goes_there() -> bool:
        ref = make.options(resources={resource: 0.01}).remote()
        ray.wait([ref], timeout=60, fetch_local=False)
        return bool(ray.get(where.remote(ref), timeout=60) == node_id)

    assert eventually(goes_there)
