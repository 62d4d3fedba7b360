"""Nodes with labels: selectors, fallbacks, label strategies, and groups that ask for labels."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.polling import eventually, stays
from tests.under_test import NAME, OWN, exceptions, init, ray, scheduling_strategies, util

ByLabel = scheduling_strategies.NodeLabelSchedulingStrategy
OnNode = scheduling_strategies.NodeAffinitySchedulingStrategy
In, NotIn = scheduling_strategies.In, scheduling_strategies.NotIn
Exists, DoesNotExist = scheduling_strategies.Exists, scheduling_strategies.DoesNotExist


@pytest.fixture(scope="module")
def nodes(no_leaks: None) -> Iterator[dict[str, str]]:
    """Name -> id of: plain (the head), west, east."""
    cluster_utils = importlib.import_module(f"{NAME}.cluster_utils")
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        made.add_node(num_cpus=1, labels={"zone": "west", "ray.io/accelerator-type": "A100"})
        made.add_node(num_cpus=1, labels={"zone": "east", "market": "spot"})
        ray.init(address=made.address)
        made.wait_for_nodes()
        found = {info["Labels"].get("zone", "plain"): info["NodeID"] for info in ray.nodes()}
        yield found
    finally:
        ray.shutdown()
        made.shutdown()


@ray.remote
def node() -> str:
    return ray.get_runtime_context().get_node_id()


@ray.remote
class Actor:
    def node(self) -> str:
        return ray.get_runtime_context().get_node_id()


def all_free() -> bool:
    """Whether nothing is held."""
    return stays(lambda: ray.available_resources().get("CPU") == 4)


def where(**options: Any) -> set[str]:
    """Where a task and an actor with these options run."""
    actor = Actor.options(**options).remote()
    found = {ray.get(actor.node.remote(), timeout=60)}
    ray.kill(actor)
    assert eventually(all_free)
    if OWN or not isinstance(options.get("scheduling_strategy"), ByLabel):  # which is for actors only there
        found.add(ray.get(node.options(**options).remote(), timeout=60))
    return found


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        ({"zone": "west"}, "west"),
        ({"zone": "in(east, north)"}, "east"),
        ({"zone": "!west", "market": "spot"}, "east"),
        ({"zone": "!in(west,east)"}, "plain"),
        ({"ray.io/accelerator-type": "A100"}, "west"),
        ({"ray.io/accelerator-type": "!A100", "zone": "in(west,east)"}, "east"),
    ],
    ids=str,
)
def test_selectors(nodes: dict[str, str], selector: dict[str, str], name: str) -> None:
    assert where(label_selector=selector) == {nodes[name]}


def test_every_node_has_its_id_as_a_label(nodes: dict[str, str]) -> None:
    assert where(label_selector={"ray.io/node-id": nodes["east"]}) == {nodes["east"]}
    assert all(info["Labels"]["ray.io/node-id"] == info["NodeID"] for info in ray.nodes())


def test_a_worker_knows_its_labels(nodes: dict[str, str]) -> None:
    @ray.remote
    def labels() -> Any:
        return ray.get_runtime_context().get_node_labels()

    found = ray.get(labels.options(label_selector={"zone": "east"}).remote())
    assert found == {"zone": "east", "market": "spot", "ray.io/node-id": nodes["east"]}


def test_fallbacks(nodes: dict[str, str]) -> None:
    nowhere = {"zone": "north"}
    fallbacks = [{"label_selector": {"zone": "south"}}, {"label_selector": {"zone": "east"}}]
    assert where(label_selector=nowhere, fallback_strategy=fallbacks) == {nodes["east"]}
    assert eventually(all_free)
    assert where(label_selector={"zone": "west"}, fallback_strategy=fallbacks) == {nodes["west"]}


def test_a_fallback_while_the_first_choice_is_busy(nodes: dict[str, str]) -> None:
    assert eventually(all_free)
    busy = Actor.options(num_cpus=1, label_selector={"zone": "west"}).remote()
    assert ray.get(busy.node.remote(), timeout=60) == nodes["west"]
    other = Actor.options(
        num_cpus=1,
        label_selector={"zone": "west"},
        fallback_strategy=[{"label_selector": {"zone": "east"}}],
    ).remote()
    assert ray.get(other.node.remote(), timeout=60) == nodes["east"]
    ray.kill(busy)
    ray.kill(other)


def test_what_no_node_satisfies_waits(nodes: dict[str, str]) -> None:
    ref = node.options(label_selector={"zone": "north"}).remote()
    actor = Actor.options(label_selector={"zone": "north"}).remote()
    assert ray.wait([ref, actor.node.remote()], timeout=0.3)[0] == []
    ray.cancel(ref)


@pytest.mark.parametrize(
    ("hard", "names"),
    [
        ({"zone": In("west")}, {"west"}),
        ({"zone": In("west", "east"), "market": DoesNotExist()}, {"west"}),
        ({"zone": NotIn("west"), "market": Exists()}, {"east"}),
        ({"zone": DoesNotExist()}, {"plain"}),
    ],
)
def test_label_strategies(nodes: dict[str, str], hard: dict[str, Any], names: set[str]) -> None:
    assert where(scheduling_strategy=ByLabel(hard)) <= {nodes[name] for name in names}


def test_soft_label_strategies(nodes: dict[str, str]) -> None:
    assert eventually(all_free)
    assert where(scheduling_strategy=ByLabel({}, soft={"zone": In("east")})) == {nodes["east"]}
    assert eventually(all_free)
    hard_and_soft = ByLabel({"zone": Exists()}, soft={"market": Exists()})
    assert where(scheduling_strategy=hard_and_soft) == {nodes["east"]}
    assert where(scheduling_strategy=ByLabel({}, soft={"zone": In("north")})) <= set(nodes.values())


def test_groups_with_selectors(nodes: dict[str, str]) -> None:
    assert eventually(all_free)
    group = util.placement_group(
        [{"CPU": 1}, {"CPU": 1}], bundle_label_selector=[{"zone": "east"}, {"zone": "west"}]
    )
    assert group.wait(30)
    placed = util.placement_group_table(group)["bundles_to_node_id"]
    assert placed == {0: nodes["east"], 1: nodes["west"]}
    util.remove_placement_group(group)
    nowhere = util.placement_group([{"CPU": 1}], bundle_label_selector=[{"zone": "north"}])
    assert not nowhere.wait(0.3)
    util.remove_placement_group(nowhere)


def test_a_group_goes_to_its_target(nodes: dict[str, str]) -> None:
    for name in ("east", "west"):
        assert eventually(all_free)
        group = util.placement_group([{"CPU": 1}], "STRICT_PACK", _soft_target_node_id=nodes[name])
        assert group.wait(30)
        assert util.placement_group_table(group)["bundles_to_node_id"] == {0: nodes[name]}
        util.remove_placement_group(group)


@pytest.mark.skipif(not OWN, reason="takes the label gpu-domain only")
def test_a_group_within_one_value_of_a_label(nodes: dict[str, str]) -> None:
    assert eventually(all_free)
    group = util.placement_group([{"CPU": 1}], topology_strategy={"market": "STRICT_PACK"})
    assert group.wait(30)
    assert util.placement_group_table(group)["bundles_to_node_id"] == {0: nodes["east"]}
    util.remove_placement_group(group)
    wide = util.placement_group([{"CPU": 1}] * 2, topology_strategy={"zone": "STRICT_PACK"})
    assert not wide.wait(0.3)
    util.remove_placement_group(wide)


def test_affinity_to_a_busy_node(nodes: dict[str, str]) -> None:
    assert eventually(all_free)
    busy = Actor.options(num_cpus=1, label_selector={"zone": "west"}).remote()
    assert ray.get(busy.node.remote(), timeout=60) == nodes["west"]
    spill = OnNode(nodes["west"], True, _spill_on_unavailable=True)
    assert ray.get(node.options(scheduling_strategy=spill).remote(), timeout=60) != nodes["west"]
    fail = OnNode(nodes["west"], False, _fail_on_unavailable=True)
    with pytest.raises(exceptions.TaskUnschedulableError):
        ray.get(node.options(scheduling_strategy=fail).remote(), timeout=60)
    soft = node.options(scheduling_strategy=OnNode(nodes["west"], soft=True)).remote()
    assert ray.wait([soft], timeout=0.3)[0] == []
    ray.kill(busy)
    assert ray.get(soft, timeout=60) == nodes["west"]


def test_labels_of_a_local_session(monkeypatch: pytest.MonkeyPatch, no_leaks: None) -> None:
    ray.shutdown()
    monkeypatch.setenv("RAY_OVERRIDE_LABELS", '{"b": "override", "c": "3"}')
    monkeypatch.setenv("RAY_NODE_MARKET_TYPE", "spot")
    init(address="local", num_cpus=1, labels={"a": "1", "b": "2"})
    try:
        (info,) = ray.nodes()
        labels = dict(info["Labels"])
        assert labels.pop("ray.io/node-id") == info["NodeID"]
        assert labels == {"a": "1", "b": "override", "c": "3", "ray.io/market-type": "spot"}
        assert ray.get_runtime_context().get_node_labels()["a"] == "1"
    finally:
        ray.shutdown()
