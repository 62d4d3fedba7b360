"""Placement groups on one node. What needs several nodes is in test_scheduling.py."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import exceptions, ray, scheduling_strategies, util

pytestmark = pytest.mark.usefixtures("session")

InGroup = scheduling_strategies.PlacementGroupSchedulingStrategy


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
    assert free_cpus() == 4
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


@pytest.mark.parametrize(
    "arguments",
    [
        {"bundles": []},
        {"bundles": [{}]},
        {"bundles": [{"CPU": 0}]},
        {"bundles": {"CPU": 1}},
        {"bundles": [{"CPU": 1}], "strategy": "NO_SUCH_STRATEGY"},
        {"bundles": [{"CPU": 1}], "lifetime": "forever"},
    ],
    ids=str,
)
def test_bad_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        util.placement_group(**arguments)


def test_a_bundle_that_does_not_exist_is_refused(group: Any) -> None:
    with pytest.raises(ValueError, match="2"):
        where.options(scheduling_strategy=InGroup(group, 2)).remote()


def test_a_task_that_fits_no_bundle_is_refused(group: Any) -> None:
    with pytest.raises(ValueError):
        where.options(num_cpus=3, scheduling_strategy=InGroup(group)).remote()
