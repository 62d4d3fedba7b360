"""Nodes that are drained: what runs is finished, what has not begun goes elsewhere, and a node that is called
back works again."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import runtime as ray
from runtime._session.ask import ask_control
from runtime._transport.channel import CallError
from runtime._wire.messages.base import NodeInfo
from runtime._wire.messages.control import DrainNode, GetNodes, Nodes, ResumeNode
from runtime.cluster_utils import Cluster
from runtime.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tests.polling import eventually, stays


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head without CPUs for tasks, and a node."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        made.add_node(num_cpus=2)
        ray.init(address=made.address)
        made.wait_for_nodes()
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def ask(cluster: Cluster, request: Any) -> Any:
    secret = pathlib.Path(cluster._secret_file).read_bytes().strip()
    return ask_control(cluster.address, secret, request)


def info(cluster: Cluster, node: Any) -> NodeInfo:
    nodes = ask(cluster, GetNodes())
    assert isinstance(nodes, Nodes)
    return next(found for found in nodes.nodes if found.node_id.hex() == node.node_id)


def holds_no_lease_but_is_busy(cluster: Cluster, node: Any) -> bool:
    """What is told of a node may be from before it got work; then it is idle as well."""
    found = info(cluster, node)
    return found.available == found.total and not found.idle_since_s


def test_a_long_queue_leaves_a_draining_node_and_comes_back_to_it(cluster: Cluster) -> None:
    @ray.remote
    def work(index: int) -> int:
        time.sleep(0.02)
        return index

    (node,) = cluster.worker_nodes
    refs = [work.remote(index) for index in range(300)]
    ray.get(refs[0])
    ask(cluster, DrainNode(bytes.fromhex(node.node_id), "test", only_if_idle=False))
    assert eventually(lambda: info(cluster, node).idle_since_s > 0)
    assert info(cluster, node).state == "DRAINING"
    done, waiting = ray.wait(refs, num_returns=len(refs), timeout=0)
    assert waiting
    assert stays(lambda: len(ray.wait(refs, num_returns=len(refs), timeout=0)[0]) == len(done))
    ask(cluster, ResumeNode(bytes.fromhex(node.node_id), "test"))
    assert ray.get(refs) == list(range(300))


def test_a_node_that_prepares_a_worker_is_busy(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """An environment may take minutes, and the node must not be taken for idle meanwhile."""
    began, release = str(tmp_path / "began"), str(tmp_path / "release")

    (tmp_path / "slow_hook.py").write_text(
        "import os, pathlib, time\n"
        "def prepare():\n"
        f"    pathlib.Path({began!r}).touch()\n"
        f"    while not os.path.exists({release!r}):\n"
        "        time.sleep(0.01)\n"
    )
    env = {"env_vars": {"PYTHONPATH": str(tmp_path)}, "worker_process_setup_hook": "slow_hook.prepare"}

    @ray.remote(runtime_env=env)
    def work() -> int:
        return 1

    (node,) = cluster.worker_nodes
    assert eventually(lambda: info(cluster, node).idle_since_s > 0)
    ref = work.remote()
    assert eventually(lambda: os.path.exists(began))
    assert eventually(lambda: info(cluster, node).idle_since_s == 0)
    with pytest.raises(CallError, match=r"is not idle|holds the node"):
        ask(cluster, DrainNode(bytes.fromhex(node.node_id), "test", only_if_idle=True))
    pathlib.Path(release).touch()
    assert ray.get(ref) == 1
    assert eventually(lambda: info(cluster, node).idle_since_s > 0)


def test_a_task_that_runs_is_finished_and_the_next_goes_elsewhere(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    @ray.remote
    def work(began: str, release: str) -> str:
        pathlib.Path(began).touch()
        while not os.path.exists(release):
            time.sleep(0.01)
        return str(ray.get_runtime_context().get_node_id())

    (node,) = cluster.worker_nodes
    release = str(tmp_path / "release")
    began = [tmp_path / "first", tmp_path / "second"]
    first = work.remote(str(began[0]), release)
    assert eventually(began[0].exists)
    ask(cluster, DrainNode(bytes.fromhex(node.node_id), "test", only_if_idle=False))
    other = cluster.add_node(num_cpus=1)
    second = work.remote(str(began[1]), release)
    assert eventually(began[1].exists)
    assert info(cluster, node).idle_since_s == 0
    pathlib.Path(release).touch()
    assert ray.get([first, second]) == [node.node_id, other.node_id]
    assert eventually(lambda: info(cluster, node).idle_since_s > 0)


def test_a_primary_copy_holds_its_node(cluster: Cluster) -> None:
    @ray.remote
    def make() -> Any:
        return np.ones(1_000_000)

    (node,) = cluster.worker_nodes
    on_it = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    kept = make.options(scheduling_strategy=on_it).remote()
    ray.wait([kept], fetch_local=False)
    assert eventually(lambda: holds_no_lease_but_is_busy(cluster, node))
    assert stays(lambda: info(cluster, node).idle_since_s == 0)
    drain = DrainNode(bytes.fromhex(node.node_id), "test", only_if_idle=True)
    with pytest.raises(CallError):
        ask(cluster, drain)
    assert ray.get(kept).sum() == 1_000_000, "a copy here changes nothing"
    assert stays(lambda: info(cluster, node).idle_since_s == 0)
    del kept
    assert eventually(lambda: info(cluster, node).idle_since_s > 0)
    ask(cluster, drain)


def test_what_an_idle_worker_owns_holds_its_node(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """A small object lives with the worker that put it, and tasks die with the worker that began them."""

    @ray.remote
    def put() -> list[Any]:
        return [ray.put("small")]

    @ray.remote(num_cpus=0.1)
    def child(release: str) -> str:
        while not os.path.exists(release):
            time.sleep(0.01)
        return "done"

    @ray.remote
    def parent(release: str, node_id: str) -> list[Any]:
        elsewhere = NodeAffinitySchedulingStrategy(node_id, soft=False)
        return [child.options(scheduling_strategy=elsewhere).remote(release)]

    (node,) = cluster.worker_nodes
    other = cluster.add_node(num_cpus=1)
    on_it = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    drain = DrainNode(bytes.fromhex(node.node_id), "test", only_if_idle=True)

    held = ray.get(put.options(scheduling_strategy=on_it).remote())
    assert eventually(lambda: holds_no_lease_but_is_busy(cluster, node))
    assert stays(lambda: info(cluster, node).idle_since_s == 0)
    with pytest.raises(CallError):
        ask(cluster, drain)
    assert ray.get(held[0]) == "small"
    del held
    assert eventually(lambda: info(cluster, node).idle_since_s > 0)

    release = str(tmp_path / "release")
    refs = ray.get(parent.options(scheduling_strategy=on_it).remote(release, other.node_id))
    assert eventually(lambda: holds_no_lease_but_is_busy(cluster, node))
    assert stays(lambda: info(cluster, node).idle_since_s == 0)
    pathlib.Path(release).touch()
    assert ray.get(refs) == ["done"]
    del refs
    assert eventually(lambda: info(cluster, node).idle_since_s > 0)
    ask(cluster, drain)
