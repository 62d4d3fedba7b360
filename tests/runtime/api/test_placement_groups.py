"""Placement groups on one node. What needs several nodes is in test_scheduling.py."""

from __future__ import annotations

import importlib
import os
import pathlib
import time
from typing import Any

import pytest

from tests.polling import eventually, stays
from tests.under_test import NAME, OWN, exceptions, ray, scheduling_strategies, util

pytestmark = pytest.mark.usefixtures("session")

InGroup = scheduling_strategies.PlacementGroupSchedulingStrategy
PlacementGroup = importlib.import_module(f"{NAME}.util.placement_group").PlacementGroup
ids: Any = importlib.import_module("runtime._core.ids" if OWN else "ray")


@ray.remote(num_cpus=1)
def where() -> tuple[str | None, dict[str, float]]:
    context = ray.get_runtime_context()
    return context.get_placement_group_id(), context.get_assigned_resources()


@ray.remote(num_cpus=1)
class Actor:
    def where(self) -> str | None:
        return ray.get_runtime_context().get_placement_group_id()

    def pid(self) -> int:
        return os.getpid()

    def child(self) -> str | None:
        return ray.get(where.remote())[0]


@pytest.fixture
def group() -> Any:
    made = util.placement_group([{"CPU": 1}, {"CPU": 1}])
    ray.get(made.ready(), timeout=60)
    yield made
    util.remove_placement_group(made)
    assert eventually(lambda: ray.available_resources().get("CPU") == 4)


def free_cpus() -> float:
    return ray.available_resources().get("CPU", 0)


def test_ready_and_wait(group: Any) -> None:
    assert group.wait(timeout_seconds=30)
    assert group.bundle_count == 2
    assert group.bundle_specs == [{"CPU": 1}, {"CPU": 1}]
    assert not group.is_empty
    assert len(group.id.binary()) == 18


def test_it_reserves(group: Any) -> None:
    assert eventually(lambda: free_cpus() == 2)


def test_removal_gives_back() -> None:
    made = util.placement_group([{"CPU": 3}])
    assert made.wait(30)
    assert eventually(lambda: free_cpus() == 1)
    util.remove_placement_group(made)
    assert eventually(lambda: free_cpus() == 4)


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK"])
def test_strategies_that_one_node_satisfies(strategy: str) -> None:
    made = util.placement_group([{"CPU": 1}, {"CPU": 1}], strategy=strategy)
    assert made.wait(30)
    util.remove_placement_group(made)


def test_strict_spread_needs_as_many_nodes() -> None:
    made = util.placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    assert not made.wait(0.3)
    util.remove_placement_group(made)


def test_too_large_a_bundle_waits() -> None:
    made = util.placement_group([{"CPU": 100}])
    assert not made.wait(0.3)
    assert ray.wait([made.ready()], timeout=0.1)[0] == []
    util.remove_placement_group(made)


def test_all_or_nothing() -> None:
    made = util.placement_group([{"CPU": 3}, {"CPU": 3}])
    assert not made.wait(0.3)
    assert eventually(lambda: free_cpus() == 4)
    assert stays(lambda: free_cpus() == 4)
    util.remove_placement_group(made)


def test_a_waiting_group_is_made_when_room_appears() -> None:
    first = util.placement_group([{"CPU": 4}])
    assert first.wait(30)
    second = util.placement_group([{"CPU": 4}])
    assert not second.wait(0.2)
    util.remove_placement_group(first)
    assert second.wait(30)
    util.remove_placement_group(second)


def test_tasks_run_inside(group: Any) -> None:
    task = where.options(scheduling_strategy=InGroup(group))
    group_id, resources = ray.get(task.remote())
    assert group_id == group.id.hex()
    assert sum(amount for name, amount in resources.items() if name.startswith("CPU")) >= 1


def test_bundles_can_be_chosen(group: Any) -> None:
    refs = [where.options(scheduling_strategy=InGroup(group, index)).remote() for index in (0, 1)]
    assert [group_id for group_id, _ in ray.get(refs)] == [group.id.hex()] * 2


def test_tasks_outside_do_not_use_the_reservation(group: Any) -> None:
    assert ray.get(where.remote())[0] is None


def test_more_tasks_than_room_queue_inside(group: Any) -> None:
    refs = [where.options(scheduling_strategy=InGroup(group)).remote() for _ in range(10)]
    assert {group_id for group_id, _ in ray.get(refs)} == {group.id.hex()}


def test_actors_live_inside(group: Any) -> None:
    actor = Actor.options(scheduling_strategy=InGroup(group, 0)).remote()
    assert ray.get(actor.where.remote()) == group.id.hex()
    ray.kill(actor)


def test_tasks_that_capture_share_no_worker_with_those_that_do_not(group: Any) -> None:
    @ray.remote
    def child() -> str | None:
        return ray.get(where.remote())[0]

    for capture in (False, True, False):
        strategy = InGroup(group, 0, placement_group_capture_child_tasks=capture)
        found = ray.get(child.options(scheduling_strategy=strategy).remote(), timeout=60)
        assert found == (group.id.hex() if capture else None)


def test_children_are_captured_only_when_asked(group: Any) -> None:
    free = Actor.options(scheduling_strategy=InGroup(group, 0)).remote()
    assert ray.get(free.child.remote()) is None
    ray.kill(free)
    strategy = InGroup(group, 0, placement_group_capture_child_tasks=True)
    captured = Actor.options(scheduling_strategy=strategy).remote()
    assert ray.get(captured.child.remote(), timeout=60) == group.id.hex()
    ray.kill(captured)


def test_the_current_group(group: Any) -> None:
    @ray.remote(num_cpus=1)
    def current() -> str | None:
        found = util.get_current_placement_group()
        return found.id.hex() if found else None

    assert ray.get(current.remote()) is None
    assert util.get_current_placement_group() is None
    strategy = InGroup(group, placement_group_capture_child_tasks=True)
    assert ray.get(current.options(scheduling_strategy=strategy).remote()) == group.id.hex()


def test_removal_ends_what_runs_inside() -> None:
    made = util.placement_group([{"CPU": 1}])
    actor = Actor.options(scheduling_strategy=InGroup(made, 0)).remote()
    ray.get(actor.pid.remote(), timeout=60)
    util.remove_placement_group(made)

    def ended() -> bool:
        try:
            ray.get(actor.pid.remote(), timeout=60)
        except exceptions.RayActorError:
            return True
        return False

    assert eventually(ended)
    assert eventually(lambda: free_cpus() == 4)


def test_handles_travel(group: Any) -> None:
    @ray.remote(num_cpus=0)
    def use(made: Any) -> str:
        group_id, _ = ray.get(where.options(scheduling_strategy=InGroup(made)).remote())
        return str(group_id)

    assert ray.get(use.remote(group), timeout=60) == group.id.hex()


def test_look_up_by_name() -> None:
    made = util.placement_group([{"CPU": 1}], name="named-group")
    assert made.wait(30)
    assert util.get_placement_group("named-group").id == made.id
    util.remove_placement_group(made)
    with pytest.raises(ValueError):
        util.get_placement_group("no-such-group")


def test_the_table(group: Any) -> None:
    row = util.placement_group_table(group)
    assert row["state"] == "CREATED"
    assert row["strategy"] == "PACK"
    assert row["placement_group_id"] == group.id.hex()
    assert row["bundles"] == {0: {"CPU": 1.0}, 1: {"CPU": 1.0}}
    assert group.id.hex() in util.placement_group_table()


def test_a_removed_group_says_so() -> None:
    made = util.placement_group([{"CPU": 1}])
    assert made.wait(30)
    util.remove_placement_group(made)
    assert eventually(lambda: util.placement_group_table(made)["state"] == "REMOVED")


CPU = [{"CPU": 1}]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"bundles": []}, "Bundles must be a non-empty list"),
        ({"bundles": [{}]}, "Bundles cannot be an empty dictionary"),
        ({"bundles": [{"CPU": 0}]}, "resources with only 0 values"),
        ({"bundles": {"CPU": 1}}, "bundles must be a list"),
        ({"bundles": ({"CPU": 1},)}, "bundles must be a list"),
        ({"bundles": [{"CPU": "1"}]}, "Bundles must be a non-empty list of resource dictionaries"),
        ({"bundles": CPU, "strategy": "NO_SUCH_STRATEGY"}, "Invalid placement group strategy NO_SUCH"),
        ({"bundles": CPU, "lifetime": "forever"}, "`lifetime` argument must be either `None` or"),
        ({"bundles": CPU, "bundle_label_selector": [{}, {}]}, "should equal the length of `bundles`"),
        ({"bundles": CPU, "bundle_label_selector": [{"a": 1}]}, "must be a list of string dictionary"),
        ({"bundles": CPU, "bundle_label_selector": [{"a": "-"}]}, "Invalid label selector"),
        ({"bundles": CPU, "_soft_target_node_id": "ab" * 28}, "only works with STRICT_PACK but got PACK"),
        ({"bundles": CPU, "_soft_target_node_id": "a", "strategy": "STRICT_PACK"}, "Invalid hex ID"),
        ({"bundles": CPU, "strategy": "PACK", "topology_strategy": {}}, "cannot both be specified"),
        ({"bundles": CPU, "topology_strategy": {"a": "PACK"}}, "only 'STRICT_PACK' is"),
        ({"bundles": CPU, "topology_strategy": {"a": "X"}}, "Invalid topology strategy"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        util.placement_group(**arguments)


def test_the_marker_of_bundles_cannot_be_reserved() -> None:
    with pytest.raises(exceptions.RaySystemError, match="system reserved resource"):
        util.placement_group([{"bundle": 1}])


def test_a_bundle_that_does_not_exist_is_refused(group: Any) -> None:
    for index in (2, -2):
        with pytest.raises(ValueError, match=f"placement group bundle index {index} is invalid"):
            where.options(scheduling_strategy=InGroup(group, index)).remote()
    with pytest.raises(ValueError, match="bundle index must be -1"):
        where.options(placement_group_bundle_index=0).remote()


def test_a_task_that_fits_no_bundle_is_refused(group: Any) -> None:
    for index in (-1, 0):
        with pytest.raises(ValueError, match="Cannot schedule where with the placement group"):
            where.options(num_cpus=3, scheduling_strategy=InGroup(group, index)).remote()


def test_a_default_actor_needs_a_cpu_for_its_constructor() -> None:
    made = util.placement_group([{"custom": 1}])

    @ray.remote
    class Plain:
        pass

    with pytest.raises(ValueError, match="requires 1 CPU for creation"):
        Plain.options(scheduling_strategy=InGroup(made)).remote()
    util.remove_placement_group(made)


def test_what_a_task_holds_has_its_own_names(group: Any) -> None:
    for index in (-1, 1):
        for cpus, held in ((1, {"CPU": 1.0}), (0, {})):
            task = where.options(num_cpus=cpus, scheduling_strategy=InGroup(group, index))
            assert ray.get(task.remote())[1] == held


def test_the_bundles_are_resources_of_the_cluster(group: Any) -> None:
    pg_id = group.id.hex()
    assert eventually(lambda: ray.cluster_resources().get(f"CPU_group_{pg_id}") == 2)
    found = ray.cluster_resources()
    assert found[f"CPU_group_0_{pg_id}"] == 1
    assert found[f"bundle_group_1_{pg_id}"] == 1000
    assert found[f"bundle_group_{pg_id}"] == 2000
    assert not [name for name in ray.nodes()[0]["Resources"] if "_group_" in name]


def test_the_same_name_again_is_refused() -> None:
    made = util.placement_group(CPU, name="taken")
    with pytest.raises(exceptions.RaySystemError, match="already exists"):
        util.placement_group(CPU, name="taken")
    util.remove_placement_group(made)
    again = util.placement_group(CPU, name="taken")
    assert again.wait(30)
    util.remove_placement_group(again)
    with pytest.raises(ValueError, match="Failed to look up placement group"):
        util.get_placement_group("taken")
    with pytest.raises(ValueError, match="non-empty"):
        util.get_placement_group("")


def test_the_group_of_nothing() -> None:
    empty = PlacementGroup.empty()
    assert empty.is_empty
    assert empty.bundle_cache is None
    assert ray.get(empty.ready()) == empty


def test_ready_gives_the_group(group: Any) -> None:
    ready, _ = ray.wait([group.ready()], timeout=30)
    found = ray.get(ready[0])
    assert found == group
    assert found.bundle_specs == group.bundle_specs


def test_the_statistics_of_a_group(group: Any) -> None:
    stats = util.placement_group_table(group)["stats"]
    assert stats["scheduling_state"] == "FINISHED"
    assert stats["scheduling_attempt"] >= 1
    assert stats["end_to_end_creation_latency_ms"] >= stats["scheduling_latency_ms"] >= 0
    assert "highest_retry_delay_ms" in stats


@pytest.mark.parametrize(("cpus", "state"), [(100, "INFEASIBLE"), (4, "NO_RESOURCES")])
def test_why_a_group_waits(group: Any, cpus: int, state: str) -> None:
    made = util.placement_group([{"CPU": cpus}])

    def scheduling() -> str:
        return str(util.placement_group_table(made)["stats"]["scheduling_state"])

    assert eventually(lambda: scheduling() == state)
    row = util.placement_group_table(made)
    assert row["state"] == "PENDING"
    assert row["bundles_to_node_id"] == {0: ""}
    util.remove_placement_group(made)
    assert eventually(lambda: scheduling() == "REMOVED")


def test_an_unknown_group() -> None:
    unknown = PlacementGroup(ids.PlacementGroupID.from_random())
    assert util.placement_group_table(unknown) == {}
    util.remove_placement_group(unknown)


@ray.remote(num_cpus=1, max_retries=0)
def hold(began: str = "") -> None:
    if began:
        pathlib.Path(began).touch()
    time.sleep(600)


def test_what_is_in_a_removed_group_ends(tmp_path: pathlib.Path) -> None:
    made = util.placement_group([{"CPU": 2}])
    in_it = InGroup(made)
    running = Actor.options(scheduling_strategy=in_it).remote()
    ray.get(running.pid.remote(), timeout=60)
    task = hold.options(scheduling_strategy=in_it).remote(str(tmp_path / "began"))
    assert eventually((tmp_path / "began").exists)
    queued_task = hold.options(scheduling_strategy=in_it).remote()
    waiting = Actor.options(scheduling_strategy=in_it).remote().pid.remote()
    assert ray.wait([queued_task, waiting], timeout=0.3)[0] == []
    util.remove_placement_group(made)
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(running.pid.remote(), timeout=60)
    with pytest.raises(exceptions.WorkerCrashedError):
        ray.get(task, timeout=60)
    with pytest.raises(exceptions.TaskPlacementGroupRemoved):
        ray.get(queued_task, timeout=60)
    with pytest.raises(exceptions.ActorUnschedulableError, match="placement group was removed"):
        ray.get(waiting, timeout=60)
    with pytest.raises(exceptions.TaskPlacementGroupRemoved):
        ray.get(made.ready(), timeout=60)
    with pytest.raises(Exception, match="does not exist"):
        made.wait(5)


@pytest.mark.skipif(not OWN, reason="they wait for ever there")
def test_what_comes_into_a_removed_group_fails() -> None:
    made = util.placement_group(CPU)
    assert made.wait(30)
    util.remove_placement_group(made)
    with pytest.raises(exceptions.TaskPlacementGroupRemoved):
        ray.get(where.options(scheduling_strategy=InGroup(made)).remote(), timeout=60)
    with pytest.raises(exceptions.ActorUnschedulableError):
        ray.get(Actor.options(scheduling_strategy=InGroup(made)).remote().pid.remote(), timeout=60)


def test_ready_of_a_group_that_is_removed_while_it_waits() -> None:
    made = util.placement_group([{"CPU": 100}])
    ready = made.ready()
    assert ray.wait([ready], timeout=0.1)[0] == []
    util.remove_placement_group(made)
    with pytest.raises(exceptions.TaskPlacementGroupRemoved):
        ray.get(ready, timeout=60)


def test_children_leave_the_group_when_told(group: Any) -> None:
    @ray.remote(num_cpus=1)
    def parent() -> list[str | None]:
        context = ray.get_runtime_context()
        assert context.should_capture_child_tasks_in_placement_group
        return ray.get(
            [
                where.remote(),
                where.options(name="again").remote(),
                where.options(scheduling_strategy="DEFAULT").remote(),
                where.options(scheduling_strategy="SPREAD").remote(),
                where.options(placement_group=None).remote(),
                where.options(scheduling_strategy=InGroup(None)).remote(),
            ]
        )

    strategy = InGroup(group, placement_group_capture_child_tasks=True)
    found = ray.get(parent.options(scheduling_strategy=strategy).remote(), timeout=60)
    assert [group_id for group_id, _ in found] == [group.id.hex()] * 2 + [None] * 4


def test_grandchildren_are_captured_too(group: Any) -> None:
    @ray.remote(num_cpus=0)
    def child() -> Any:
        return ray.get(where.options(num_cpus=0).remote())[0]

    @ray.remote(num_cpus=0)
    def parent() -> Any:
        return ray.get(child.remote())

    strategy = InGroup(group, placement_group_capture_child_tasks=True)
    for _ in range(2):
        assert ray.get(parent.options(scheduling_strategy=strategy).remote(), timeout=60) == group.id.hex()
        assert ray.get(parent.remote(), timeout=60) is None


def test_a_captured_child_must_fit(group: Any) -> None:
    @ray.remote(num_cpus=0)
    def parent() -> str:
        try:
            where.options(num_cpus=2).remote()
        except ValueError as error:
            return str(error)
        return "it was accepted"

    strategy = InGroup(group, placement_group_capture_child_tasks=True)
    words = ray.get(parent.options(scheduling_strategy=strategy).remote(), timeout=60)
    assert "Cannot schedule where with the placement group" in words


def test_the_deprecated_options(group: Any) -> None:
    with pytest.warns(DeprecationWarning, match="placement_group parameter is deprecated"):
        assert ray.get(where.options(placement_group=group).remote())[0] == group.id.hex()
    task = where.options(placement_group=group, placement_group_bundle_index=1)
    with pytest.warns(DeprecationWarning, match="placement_group_bundle_index parameter is deprecated"):
        assert ray.get(task.remote())[0] == group.id.hex()
    with pytest.raises(ValueError, match="should be specified via the scheduling_strategy option"):
        where.options(placement_group=group, scheduling_strategy="SPREAD").remote()


def test_many_groups() -> None:
    groups = [util.placement_group([{"CPU": 0.001}]) for _ in range(300)]
    assert ray.get([made.ready() for made in groups], timeout=60) == groups
    for made in groups:
        util.remove_placement_group(made)
    assert eventually(lambda: free_cpus() == 4)


def test_a_group_that_was_used_is_gone_when_its_removal_returns() -> None:
    made = util.placement_group(CPU)
    actor = Actor.options(scheduling_strategy=InGroup(made)).remote()
    ray.get(actor.pid.remote(), timeout=60)
    util.remove_placement_group(made)
    with pytest.raises(exceptions.RayActorError):
        ray.get(actor.pid.remote(), timeout=60)


def test_an_unused_group_is_found_removed_by_what_follows() -> None:
    for _ in range(20):
        made = util.placement_group(CPU)
        util.remove_placement_group(made)
        assert util.placement_group_table(made)["state"] == "REMOVED"
        util.remove_placement_group(made)
