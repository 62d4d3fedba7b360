"""Nodes that are killed: their tasks run elsewhere, their objects are rebuilt, their actors come back."""

from __future__ import annotations

import os
import pathlib
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import runtime as ray
from runtime import exceptions
from runtime.cluster_utils import Cluster
from runtime.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tests.polling import eventually
from tests.processes import is_alive
from tests.stalls import suspend


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head without CPUs for tasks, and two nodes."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        for _ in range(2):
            made.add_node(num_cpus=1, resources={"widget": 1})
        ray.init(address=made.address)
        made.wait_for_nodes()
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def soft(node: Any) -> Any:
    return NodeAffinitySchedulingStrategy(node.node_id, soft=True)


@ray.remote
def where() -> str:
    return str(ray.get_runtime_context().get_node_id())


def test_a_running_task_runs_again_elsewhere(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    @ray.remote
    def work(folder: str, release: str) -> str:
        node_id = str(ray.get_runtime_context().get_node_id())
        pathlib.Path(folder, node_id).touch()
        while not os.path.exists(release):
            time.sleep(0.01)
        return node_id

    victim, other = cluster.worker_nodes
    folder = tmp_path / "nodes"
    folder.mkdir()
    task = work.options(scheduling_strategy=soft(victim))
    ref = task.remote(str(folder), str(tmp_path / "release"))
    assert eventually((folder / victim.node_id).exists)
    cluster.remove_node(victim, allow_graceful=False)
    (tmp_path / "release").touch()
    assert ray.get(ref, timeout=60) == other.node_id


def test_a_task_without_retries_fails_with_its_node(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    @ray.remote(max_retries=0)
    def work(began: str) -> None:
        pathlib.Path(began).touch()
        time.sleep(600)

    victim, _ = cluster.worker_nodes
    ref = work.options(scheduling_strategy=soft(victim)).remote(str(tmp_path / "began"))
    assert eventually((tmp_path / "began").exists)
    cluster.remove_node(victim, allow_graceful=False)
    with pytest.raises(exceptions.NodeDiedError, match="work failed"):
        ray.get(ref, timeout=60)


def test_a_dead_node_is_seen_as_dead_and_its_workers_are_gone(cluster: Cluster) -> None:
    @ray.remote(num_cpus=0)
    class Actor:
        def pid(self) -> int:
            return os.getpid()

    victim, _ = cluster.worker_nodes
    actor = Actor.options(scheduling_strategy=soft(victim)).remote()
    pid = ray.get(actor.pid.remote(), timeout=60)
    cluster.remove_node(victim, allow_graceful=False)
    assert eventually(lambda: not is_alive(pid))
    rows = {row["NodeID"]: row for row in ray.nodes()}

    def dead() -> bool:
        rows.update({row["NodeID"]: row for row in ray.nodes()})
        return not rows[victim.node_id]["Alive"]

    assert eventually(dead)
    assert eventually(lambda: ray.cluster_resources().get("CPU") == 1)


def test_a_lost_object_is_rebuilt(cluster: Cluster) -> None:
    @ray.remote
    def make(value: int) -> Any:
        return np.full(2**18, value)

    @ray.remote
    def double(array: Any) -> Any:
        return array * 2

    victim, _ = cluster.worker_nodes
    first = make.options(scheduling_strategy=soft(victim)).remote(21)
    second = double.options(scheduling_strategy=soft(victim)).remote(first)
    ray.wait([second], timeout=60, fetch_local=False)
    cluster.remove_node(victim, allow_graceful=False)
    assert int(ray.get(second, timeout=60)[0]) == 42
    assert int(ray.get(first, timeout=60)[0]) == 21


def test_an_object_that_cannot_be_rebuilt_is_lost(cluster: Cluster) -> None:
    @ray.remote(max_retries=0)
    def make() -> Any:
        return np.ones(2**18)

    victim, _ = cluster.worker_nodes
    ref = make.options(scheduling_strategy=soft(victim)).remote()
    ray.wait([ref], timeout=60, fetch_local=False)
    cluster.remove_node(victim, allow_graceful=False)
    with pytest.raises(exceptions.ObjectLostError):
        ray.get(ref, timeout=60)


def test_an_actor_dies_with_its_node(cluster: Cluster) -> None:
    @ray.remote(num_cpus=0)
    class Actor:
        def node(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

    victim, _ = cluster.worker_nodes
    actor = Actor.options(scheduling_strategy=soft(victim)).remote()
    assert ray.get(actor.node.remote(), timeout=60) == victim.node_id
    cluster.remove_node(victim, allow_graceful=False)
    with pytest.raises(exceptions.RayActorError):
        ray.get(actor.node.remote(), timeout=60)


def test_an_actor_with_restarts_moves_to_another_node(cluster: Cluster) -> None:
    @ray.remote(num_cpus=0, max_restarts=1, max_task_retries=-1)
    class Actor:
        def node(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

    victim, _ = cluster.worker_nodes
    actor = Actor.options(resources={"widget": 1}, scheduling_strategy=soft(victim)).remote()
    assert ray.get(actor.node.remote(), timeout=60) == victim.node_id
    cluster.remove_node(victim, allow_graceful=False)
    assert ray.get(actor.node.remote(), timeout=60) != victim.node_id


def test_an_actor_that_nobody_wants_any_more_does_not_move(cluster: Cluster) -> None:
    @ray.remote(num_cpus=0, max_restarts=1, resources={"widget": 1})
    class Actor:
        def node(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

    victim, _ = cluster.worker_nodes
    actor = Actor.options(scheduling_strategy=soft(victim)).remote()
    assert ray.get(actor.node.remote(), timeout=60) == victim.node_id
    cluster.remove_node(victim, allow_graceful=False)
    del actor  # before the cluster knows of its node's death
    assert eventually(lambda: ray.cluster_resources()["widget"] == 1)
    assert ray.get(where.options(resources={"widget": 1}).remote(), timeout=60) != victim.node_id


def process_tree(pid: int) -> list[int]:
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in process_tree(int(child)))]


def test_a_machine_that_falls_silent_without_closing_a_connection(cluster: Cluster) -> None:
    @ray.remote(num_cpus=0)
    class Actor:
        def work(self) -> None:
            time.sleep(1000)

        def refs(self) -> list[Any]:
            return [ray.put(np.ones(2**18)), ray.put(1)]

    victim, _ = cluster.worker_nodes
    actor = Actor.options(scheduling_strategy=soft(victim)).remote()
    large, small = ray.get(actor.refs.remote(), timeout=60)
    running = actor.work.remote()
    frozen = process_tree(victim.pid)
    try:
        for pid in frozen:
            suspend(pid)
        with pytest.raises(exceptions.ActorDiedError, match="The actor is dead because its node has died"):
            ray.get(running, timeout=60)
        for ref in (large, small):
            with pytest.raises(exceptions.OwnerDiedError):
                ray.get(ref, timeout=60)
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGKILL)
        cluster.remove_node(victim, allow_graceful=False)


def test_work_continues_on_a_node_that_joins_later(cluster: Cluster) -> None:
    for node in list(cluster.worker_nodes):
        cluster.remove_node(node, allow_graceful=False)
    refs = [where.remote() for _ in range(4)]
    assert ray.wait(refs, timeout=0.3)[0] == []
    added = cluster.add_node(num_cpus=1)
    assert set(ray.get(refs, timeout=60)) == {added.node_id}


def test_a_graceful_removal(cluster: Cluster) -> None:
    victim, other = cluster.worker_nodes
    cluster.remove_node(victim)
    assert ray.get(where.remote(), timeout=60) == other.node_id
