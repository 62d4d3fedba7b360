"""Which node gets what, on a cluster of several."""

from __future__ import annotations

import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.polling import eventually, stays
from tests.under_test import NAME, OWN, exceptions, ray, scheduling_strategies, util

OnNode = scheduling_strategies.NodeAffinitySchedulingStrategy
InGroup = scheduling_strategies.PlacementGroupSchedulingStrategy


@pytest.fixture(scope="module")
def cluster(no_leaks: None) -> Iterator[Any]:
    """A head with 2 CPUs, two nodes with 2 CPUs each; one of these has a widget."""
    cluster_utils = importlib.import_module(f"{NAME}.cluster_utils")
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        made.add_node(num_cpus=2, resources={"widget": 2})
        made.add_node(num_cpus=2)
        ray.init(address=made.address)
        made.wait_for_nodes()
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote
def node() -> str:
    return ray.get_runtime_context().get_node_id()


@ray.remote
def hold(folder: str) -> str:
    """Keeps its CPU, as a task that waits in `get` would not, until all who share `folder` may go."""
    fd, _ = tempfile.mkstemp(dir=folder)
    os.close(fd)
    while not os.path.exists(f"{folder}/go"):
        time.sleep(0.01)
    return ray.get_runtime_context().get_node_id()


@ray.remote(num_cpus=0)
class Actor:
    def node(self) -> str:
        return ray.get_runtime_context().get_node_id()


def node_ids() -> list[str]:
    return [info["NodeID"] for info in ray.nodes() if info["Alive"]]


def widget_node() -> str:
    (found,) = (info["NodeID"] for info in ray.nodes() if info["Resources"].get("widget"))
    return found


def all_free() -> bool:
    """Whether nothing is held."""
    return stays(lambda: ray.available_resources().get("CPU") == 6)


def test_the_cluster_is_seen() -> None:
    assert len(node_ids()) == 3
    assert ray.cluster_resources()["CPU"] == 6
    assert ray.cluster_resources()["widget"] == 2


def nodes_of_running(task: Any, count: int, folder: pathlib.Path) -> list[str]:
    """Where `count` calls run that all run at the same time."""
    assert eventually(all_free)
    refs = [task.remote(str(folder)) for _ in range(count)]
    assert eventually(lambda: len(list(folder.iterdir())) == count, timeout_s=40)
    (folder / "go").touch()
    return ray.get(refs, timeout=40)


def test_work_overflows_to_other_nodes(tmp_path: pathlib.Path) -> None:
    assert Counter(nodes_of_running(hold, 6, tmp_path)) == dict.fromkeys(node_ids(), 2)


def test_custom_resources_choose_the_node() -> None:
    refs = [node.options(resources={"widget": 1}).remote() for _ in range(6)]
    assert set(ray.get(refs)) == {widget_node()}


def test_actors_with_custom_resources() -> None:
    actor = Actor.options(resources={"widget": 1}).remote()
    assert ray.get(actor.node.remote()) == widget_node()
    ray.kill(actor)


def test_affinity_to_every_node() -> None:
    wanted = node_ids()
    refs = [node.options(scheduling_strategy=OnNode(node_id, soft=False)).remote() for node_id in wanted]
    assert ray.get(refs) == wanted


def test_affinity_of_actors() -> None:
    wanted = node_ids()
    actors = [Actor.options(scheduling_strategy=OnNode(node_id, soft=False)).remote() for node_id in wanted]
    assert ray.get([actor.node.remote() for actor in actors]) == wanted


def test_hard_affinity_to_an_unknown_node_fails() -> None:
    strategy = OnNode("00" * 28, soft=False)
    with pytest.raises(exceptions.TaskUnschedulableError):
        ray.get(node.options(scheduling_strategy=strategy).remote(), timeout=60)
    actor = Actor.options(scheduling_strategy=strategy).remote()
    with pytest.raises(exceptions.ActorUnschedulableError):
        ray.get(actor.node.remote(), timeout=60)


def test_soft_affinity_to_an_unknown_node_runs_elsewhere() -> None:
    strategy = OnNode("00" * 28, soft=True)
    assert ray.get(node.options(scheduling_strategy=strategy).remote(), timeout=60) in node_ids()


def test_spread(tmp_path: pathlib.Path) -> None:
    """A node hears a moment later than the control store that others are free again, so one round may see them busy."""
    task = hold.options(scheduling_strategy="SPREAD")
    folders = [tmp_path / str(number) for number in range(5)]
    for folder in folders:
        folder.mkdir()
    assert any(len(set(nodes_of_running(task, 3, folder))) == 3 for folder in folders)


def test_an_infeasible_task_waits_for_a_node(cluster: Any) -> None:
    ref = node.options(resources={"gadget": 1}).remote()
    assert ray.wait([ref], timeout=0.3)[0] == []
    added = cluster.add_node(num_cpus=1, resources={"gadget": 1})
    assert ray.get(ref, timeout=60)
    cluster.remove_node(added)
    assert eventually(lambda: len(node_ids()) == 3, timeout_s=60)


@pytest.mark.parametrize(("strategy", "nodes"), [("STRICT_PACK", 1), ("STRICT_SPREAD", 3), ("SPREAD", 3)])
def test_group_strategies(strategy: str, nodes: int) -> None:
    assert eventually(all_free)
    count = 2 if nodes == 1 else 3
    group = util.placement_group([{"CPU": 1}] * count, strategy=strategy)
    assert group.wait(30)
    refs = [node.options(scheduling_strategy=InGroup(group, index)).remote() for index in range(count)]
    assert len(set(ray.get(refs))) == nodes
    util.remove_placement_group(group)
    assert eventually(all_free)


def test_packed_groups_prefer_one_node() -> None:
    assert eventually(all_free)
    group = util.placement_group([{"CPU": 1}, {"CPU": 1}], strategy="PACK")
    assert group.wait(30)
    refs = [node.options(scheduling_strategy=InGroup(group, index)).remote() for index in range(2)]
    assert len(set(ray.get(refs))) == 1
    util.remove_placement_group(group)
    assert eventually(all_free)


def test_strict_pack_does_not_span_nodes() -> None:
    group = util.placement_group([{"CPU": 2}, {"CPU": 2}], strategy="STRICT_PACK")
    assert not group.wait(0.5)
    util.remove_placement_group(group)


def test_objects_are_read_from_other_nodes() -> None:
    @ray.remote
    def make(value: int) -> Any:
        return np.full(2**18, value)

    @ray.remote
    def total(array: Any) -> int:
        return int(array.sum())

    wanted = node_ids()
    arrays = [
        make.options(scheduling_strategy=OnNode(node_id, soft=False)).remote(i)
        for i, node_id in enumerate(wanted)
    ]
    for node_id in wanted:
        there = total.options(scheduling_strategy=OnNode(node_id, soft=False))
        assert ray.get([there.remote(array) for array in arrays]) == [i * 2**18 for i in range(len(wanted))]
    assert [int(array[0]) for array in ray.get(arrays)] == [0, 1, 2]


def test_actors_are_called_across_nodes() -> None:
    @ray.remote
    def ask(actor: Any) -> tuple[str, str]:
        return ray.get(actor.node.remote()), ray.get_runtime_context().get_node_id()

    first, *_, last = node_ids()
    actor = Actor.options(scheduling_strategy=OnNode(first, soft=False)).remote()
    task = ask.options(scheduling_strategy=OnNode(last, soft=False))
    assert ray.get(task.remote(actor)) == (first, last)


@ray.remote
def big(value: int) -> Any:
    return np.full(2**18, value)


@ray.remote
def node_with(*_arguments: Any) -> str:
    return ray.get_runtime_context().get_node_id()


def made_on(node_id: str) -> Any:
    ref = big.options(scheduling_strategy=OnNode(node_id, soft=False)).remote(1)
    assert ray.wait([ref], timeout=60, fetch_local=False)[0] == [ref]
    return ref


def test_tasks_go_where_their_arguments_are() -> None:
    wanted = node_ids()
    arrays = {node_id: made_on(node_id) for node_id in wanted}
    for node_id in wanted * 2:
        assert eventually(all_free)
        assert ray.get(node_with.remote(arrays[node_id]), timeout=60) == node_id
        assert ray.get(node_with.remote(1, arrays[node_id], "x"), timeout=60) == node_id


def test_most_bytes_decide() -> None:
    first, second, *_ = node_ids()
    more = [made_on(second) for _ in range(2)]
    assert eventually(all_free)
    assert ray.get(node_with.remote(made_on(first), *more), timeout=60) == second


def test_a_full_node_does_not_hold_its_arguments_back(tmp_path: pathlib.Path) -> None:
    there = widget_node()
    array = made_on(there)
    assert eventually(all_free)
    task = hold.options(num_cpus=2, scheduling_strategy=OnNode(there, soft=False))
    holding = task.remote(str(tmp_path))
    assert eventually(lambda: list(tmp_path.iterdir()), timeout_s=40)
    assert ray.get(node_with.remote(array), timeout=60) != there
    (tmp_path / "go").touch()
    assert ray.get(holding, timeout=60) == there


def test_a_group_is_mended_when_its_node_dies(cluster: Any) -> None:
    added = cluster.add_node(num_cpus=1, resources={"fragile": 1})
    cluster.wait_for_nodes()
    group = util.placement_group([{"fragile": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    assert group.wait(30)
    before = util.placement_group_table(group)["bundles_to_node_id"]
    inside = node.options(num_cpus=0, scheduling_strategy=InGroup(group, 0))
    assert ray.get(inside.remote(), timeout=60) == before[0]
    cluster.remove_node(added, allow_graceful=False)
    assert eventually(lambda: util.placement_group_table(group)["state"] == "RESCHEDULING", timeout_s=60)
    waiting = inside.remote()
    again = cluster.add_node(num_cpus=1, resources={"fragile": 1})
    assert ray.get(waiting, timeout=60) != before[0]
    assert eventually(lambda: util.placement_group_table(group)["state"] == "CREATED", timeout_s=60)
    after = util.placement_group_table(group)["bundles_to_node_id"]
    assert after[1] == before[1]
    assert after[0] not in before.values()
    util.remove_placement_group(group)
    cluster.remove_node(again)
    assert eventually(lambda: len(node_ids()) == 3, timeout_s=60)


def test_a_group_waits_for_a_node(cluster: Any) -> None:
    group = util.placement_group([{"late": 1}])
    assert not group.wait(0.3)
    added = cluster.add_node(num_cpus=1, resources={"late": 1})
    assert group.wait(60)
    util.remove_placement_group(group)
    cluster.remove_node(added)
    assert eventually(lambda: len(node_ids()) == 3, timeout_s=60)


def test_hard_affinity_to_a_node_that_dies(cluster: Any) -> None:
    added = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    (found,) = set(node_ids()) - set(before_of(cluster, added))
    hard, soft = OnNode(found, soft=False), OnNode(found, soft=True)
    assert ray.get(node.options(scheduling_strategy=hard).remote(), timeout=60) == found
    cluster.remove_node(added)
    assert eventually(lambda: len(node_ids()) == 3, timeout_s=60)
    with pytest.raises(exceptions.TaskUnschedulableError):
        ray.get(node.options(scheduling_strategy=hard).remote(), timeout=60)
    assert ray.get(node.options(scheduling_strategy=soft).remote(), timeout=60) in node_ids()


def before_of(cluster: Any, added: Any) -> list[str]:
    """The ids of all other nodes."""
    return [known.node_id for known in cluster.list_all_nodes() if known is not added]


DRIVER = """
import importlib, sys
ray = importlib.import_module(sys.argv[1])
util = importlib.import_module(sys.argv[1] + ".util")
ray.init(address=sys.argv[2], namespace="drivers")
for name, lifetime in (("stays", "detached"), ("goes", None)):
    assert util.placement_group([{"CPU": 1}], name=name, lifetime=lifetime).wait(30)
"""


def test_detached_groups_outlive_their_driver(cluster: Any) -> None:
    assert eventually(all_free)
    command = [sys.executable, "-c", DRIVER, NAME, cluster.address]
    subprocess.run(command, check=True, timeout=60, capture_output=True)

    def states() -> dict[str, str]:
        rows = util.placement_group_table().values()
        return {row["name"]: row["state"] for row in rows if row["name"] in ("stays", "goes")}

    assert eventually(lambda: states() == {"stays": "CREATED", "goes": "REMOVED"})
    (stays,) = (key for key, row in util.placement_group_table().items() if row["name"] == "stays")
    with pytest.raises(ValueError, match="Failed to look up"):  # from another namespace
        util.get_placement_group("stays")
    groups = importlib.import_module(f"{NAME}.util.placement_group")
    ids = importlib.import_module("runtime._core.ids" if OWN else "ray")
    util.remove_placement_group(groups.PlacementGroup(ids.PlacementGroupID(bytes.fromhex(stays))))
    assert eventually(all_free)
