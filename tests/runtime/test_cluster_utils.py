"""`cluster_utils.Cluster`: nodes that come and go, and processes that are killed one by one."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import NAME, ray

cluster_utils: Any = importlib.import_module(f"{NAME}.cluster_utils")


@pytest.fixture
def cluster() -> Iterator[Any]:
    patient = {"gcs_rpc_server_reconnect_timeout_s": 60}  # so long may a control store take to come back
    made = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": patient}
    )
    yield made
    ray.shutdown()
    made.shutdown()


def test_a_head_must_be_there_to_connect_to() -> None:
    with pytest.raises(RuntimeError, match="Cannot connect"):
        cluster_utils.Cluster(connect=True)


def test_an_empty_cluster_has_no_address() -> None:
    made = cluster_utils.Cluster()
    assert made.address is None
    assert made.list_all_nodes() == []
    head = made.add_node(num_cpus=2)
    assert made.head_node is head
    assert made.address == made.gcs_address
    made.shutdown()


def test_nodes_are_added_and_removed(cluster: Any) -> None:
    cluster.wait_for_nodes()
    added = cluster.add_node(num_cpus=2, resources={"special": 1}, labels={"zone": "a"})
    cluster.wait_for_nodes()
    cluster.connect(namespace="here")
    assert cluster.connected
    assert ray.cluster_resources()["CPU"] == 3
    rows = {row["NodeID"]: row for row in ray.nodes()}
    assert rows.keys() == {cluster.head_node.node_id, added.node_id}
    assert added.unique_id not in (None, cluster.head_node.unique_id)
    assert rows[added.node_id]["Resources"]["special"] == 1
    assert rows[added.node_id]["Labels"]["zone"] == "a"
    assert ray.get_runtime_context().get_node_id() == cluster.head_node.node_id
    assert added.any_processes_alive()
    cluster.remove_node(added)
    assert not added.any_processes_alive()
    cluster.wait_for_nodes()
    assert ray.cluster_resources()["CPU"] == 1
    assert cluster.list_all_nodes() == [cluster.head_node]


@pytest.mark.parametrize(("graceful", "reason"), [(True, 1), (False, 2)])
def test_a_node_that_leaves_is_told_from_one_that_dies(cluster: Any, graceful: bool, reason: int) -> None:
    added = cluster.add_node(num_cpus=1, node_name="second")
    ray.init(address=cluster.address)
    cluster.wait_for_nodes()

    def row() -> Any:
        return next(row for row in ray.nodes() if row["NodeID"] == added.node_id)

    assert (row()["NodeName"], row()["DeathReason"]) == ("second", 0)
    cluster.remove_node(added, allow_graceful=graceful)
    assert eventually(lambda: not row()["Alive"])
    assert row()["DeathReason"] == reason


def test_the_processes_of_a_node(cluster: Any) -> None:
    worker = cluster.add_node(num_cpus=1)
    assert [kind for kind, _ in worker.live_processes() if kind == "raylet"] == ["raylet"]
    assert worker.dead_processes() == []
    assert worker.remaining_processes_alive()
    assert cluster.remaining_processes_alive()
    assert "gcs_server" in cluster.head_node.all_processes
    assert "gcs_server" not in worker.all_processes
    process = worker.all_processes["raylet"][0].process
    process.kill()
    process.wait()
    assert not worker.remaining_processes_alive()
    assert not cluster.remaining_processes_alive()
    assert [kind for kind, _ in worker.dead_processes()] == ["raylet"]

    def fewer_than_expected() -> bool:
        try:
            cluster.wait_for_nodes(timeout=0.2)
        except TimeoutError as error:
            return "waiting for nodes" in str(error)
        return False

    assert eventually(fewer_than_expected)
    cluster.remove_node(worker, allow_graceful=False)
    cluster.wait_for_nodes()


def test_the_node_of_this_program_is_not_removed_under_it(cluster: Any) -> None:
    ray.init(address=cluster.address)
    with pytest.raises(ValueError, match="connected to this"):
        cluster.remove_node(cluster.head_node)
    assert not ray.is_initialized()


def test_the_control_store_dies_and_comes_back(cluster: Any) -> None:
    ray.init(address=cluster.address)

    @ray.remote
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self) -> int:
            self.count += 1
            return self.count

    counter = Counter.options(name="counter", namespace="n").remote()
    assert ray.get(counter.add.remote()) == 1
    cluster.head_node.kill_gcs_server()
    assert ray.get(counter.add.remote(), timeout=60) == 2
    cluster.head_node.start_gcs_server()
    found = ray.get_actor("counter", namespace="n")
    assert ray.get(found.add.remote(), timeout=60) == 3
    cluster.wait_for_nodes()


def test_a_killed_agent_is_a_dead_node(cluster: Any) -> None:
    worker = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address)
    worker.kill_raylet()
    assert eventually(lambda: [r["Alive"] for r in ray.nodes() if r["NodeID"] == worker.node_id] == [False])
    with pytest.raises(RuntimeError):
        worker.kill_raylet()


def test_environment_and_unknown_arguments_of_a_node(cluster: Any) -> None:
    cluster.add_node(num_cpus=1, resources={"here": 1}, env_vars={"OF_THE_NODE": "yes"}, dashboard_port=0)
    with pytest.raises(TypeError):
        cluster.add_node(no_such_argument=1)
    ray.init(address=cluster.address)

    @ray.remote(resources={"here": 1})
    def read() -> Any:
        import os

        return os.environ.get("OF_THE_NODE")

    assert ray.get(read.remote(), timeout=60) == "yes"


def test_settings_that_mean_nothing_here_are_accepted() -> None:
    made = cluster_utils.Cluster(
        initialize_head=True,
        connect=True,
        head_node_args={"num_cpus": 1, "_system_config": {"health_check_period_ms": 1000}},
    )
    assert ray.is_initialized()
    ray.shutdown()
    made.shutdown()
