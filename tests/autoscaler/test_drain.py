from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.config import Budgets, Cause
from autoscaler.drain import due_back, is_done, recallable
from autoscaler.instances import Instance, InstanceState
from autoscaler.plan import plan
from autoscaler.provider import Offer
from autoscaler.scale_down import Way
from runtime._wire.messages.base import NodeInfo
from tests.autoscaler.build import BIG, NOW, SMALL, config, gang, instance, node, running, shape, snapshot

S = InstanceState


def draining(
    name: str, cause: Cause = Cause.IDLE, busy: bool = False, settled: bool = True
) -> tuple[Instance, NodeInfo]:
    info = node(name, state="DRAINING", idle_since_s=0.0 if busy else NOW - 100, free={} if busy else None)
    return instance(name, state=S.DRAINING, cause=cause, settled=settled, reason="idle for 99 s"), info


# ---------------------------------------------------------------- done


@pytest.mark.parametrize(
    ("cause", "state", "idle", "settled", "done"),
    [
        (Cause.IDLE, "DRAINING", True, True, True),
        (Cause.IDLE, "ALIVE", True, False, False),
        (Cause.OUTDATED, "ALIVE", True, True, True),
        (Cause.IDLE, "DRAINING", False, True, False),  # a driver came
        (Cause.SURPLUS, "DRAINING", False, True, False),
        (Cause.SURPLUS, "ALIVE", True, True, False),  # not before the node itself refuses work
        (Cause.SURPLUS, "DRAINING", True, True, True),
        (Cause.CONSOLIDATION, "DRAINING", False, True, False),
        (Cause.CONSOLIDATION, "DRAINING", True, True, True),
        (Cause.BY_HAND, "DEAD", False, True, True),
    ],
)
def test_the_end_of_a_drain(cause: Cause, state: str, idle: bool, settled: bool, done: bool) -> None:
    one = instance("a", state=S.DRAINING, cause=cause, settled=settled)
    assert is_done(one, node("a", state=state, idle_since_s=NOW if idle else 0.0)) is done


def test_what_is_drained_and_not_called_back_ends() -> None:
    (removal,) = plan(snapshot(config(SMALL), draining("a"))).removals
    assert (removal.instance_id, removal.way, removal.reason) == (
        "a",
        Way.TERMINATE,
        "drained: idle for 99 s",
    )
    assert plan(snapshot(config(SMALL), draining("a", settled=False))).removals == ()


# ---------------------------------------------------------------- called back


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("cause", [Cause.IDLE, Cause.OUTDATED, Cause.CONSOLIDATION])
def test_waiting_work_calls_a_draining_node_back_before_anything_is_launched(
    cause: Cause, settled: bool
) -> None:
    made = plan(snapshot(config(SMALL), draining("a", cause, settled=settled), shapes=[(shape(CPU=1), 2)]))
    assert (made.launches, made.removals) == ((), ())
    assert made.recalls == {"a": "waiting work will use it"}


def test_only_as_many_come_back_as_are_needed() -> None:
    pairs = [draining(f"n{index}") for index in range(4)]
    made = plan(snapshot(config(SMALL), *pairs, shapes=[(shape(CPU=1), 3)]))
    assert len(made.recalls) == 2
    assert {removal.instance_id for removal in made.removals} == {"n0", "n1", "n2", "n3"} - set(made.recalls)


def test_nodes_that_work_are_used_first() -> None:
    made = plan(snapshot(config(SMALL), running("b"), draining("a"), shapes=[(shape(CPU=1), 2)]))
    assert made.recalls == {}


def test_a_group_and_an_explicit_request_call_back_too() -> None:
    group = gang("STRICT_SPREAD", shape(CPU=1), shape(CPU=1))
    assert set(plan(snapshot(config(SMALL), draining("a"), draining("b"), gangs=[group])).recalls) == {
        "a",
        "b",
    }
    made = plan(snapshot(config(SMALL), draining("a"), explicit=[(shape(CPU=2), 1)]))
    assert (set(made.recalls), made.launches) == ({"a"}, ())


def test_work_that_names_the_node_calls_it_back() -> None:
    assert set(plan(snapshot(config(SMALL), draining("a"), pinned=[b"a"])).recalls) == {"a"}


def test_a_minimum_calls_back_before_it_launches_but_not_what_is_to_be_replaced() -> None:
    settings = config(replace(SMALL, min_workers=1))
    made = plan(snapshot(settings, draining("a")))
    assert (set(made.recalls), made.launches, made.removals) == ({"a"}, (), ())
    made = plan(snapshot(settings, draining("a", Cause.OUTDATED)))
    assert made.recalls == {}
    assert [launch.count for launch in made.launches] == [1]
    assert [removal.instance_id for removal in made.removals] == ["a"]


def test_an_idle_node_that_a_driver_came_to_goes_back() -> None:
    made = plan(snapshot(config(SMALL), draining("a", busy=True)))
    assert made.recalls == {"a": "something holds it after all"}
    assert made.removals == ()


@pytest.mark.parametrize("cause", [Cause.BY_HAND, Cause.UNWANTED])
def test_what_a_person_drains_or_gives_up_is_not_called_back(cause: Cause) -> None:
    made = plan(snapshot(config(SMALL), draining("a", cause), shapes=[(shape(CPU=1), 1)]))
    assert made.recalls == {}
    assert [launch.count for launch in made.launches] == [1]


def test_what_exceeds_a_maximum_comes_back_only_when_there_is_room_again() -> None:
    surplus = draining("a", Cause.SURPLUS, busy=True)
    wanted = [(shape(CPU=1), 9)]
    one = config(replace(SMALL, max_workers=1))
    assert plan(snapshot(one, surplus, running("b", free={}), shapes=wanted)).recalls == {}
    assert set(plan(snapshot(one, surplus)).recalls) == {"a"}, "the other one is gone"
    two = config(replace(SMALL, max_workers=2))
    assert set(plan(snapshot(two, surplus, running("b", free={}))).recalls) == {"a"}
    idle = draining("a", Cause.SURPLUS)
    assert plan(snapshot(two, idle, running("b", free={}))).recalls == {}, "nothing needs it"
    whole = config(SMALL, BIG, max_workers=1)
    assert plan(snapshot(whole, surplus, running("b", BIG, free={}), shapes=wanted)).recalls == {}


def test_busy_ones_come_back_before_idle_ones_and_a_dead_node_does_not() -> None:
    settings = config(SMALL)
    pairs = [draining("a"), draining("b", Cause.SURPLUS, busy=True), draining("c", Cause.OUTDATED)]
    picture = snapshot(settings, *pairs, (instance("d", state=S.DRAINING), node("d", state="DEAD")))
    assert [one.id for one in recallable(picture, set())] == ["b", "a", "c"]
    assert due_back(picture, set(), []) == {}


def test_a_node_on_its_way_back_counts_as_it_is() -> None:
    back = (instance("a", recalled=True), node("a", state="DRAINING", free={"CPU": 1}))
    assert plan(snapshot(config(SMALL), back, shapes=[(shape(CPU=1), 1)])).launches == ()
    assert len(plan(snapshot(config(SMALL), back, shapes=[(shape(CPU=1), 2)])).launches) == 1


def test_what_is_too_dear_does_not_come_back() -> None:
    one, info = draining("a", Cause.SURPLUS, busy=True)
    other, works = running("b", free={})
    pairs = [(replace(one, offer=Offer(price=2.0)), info), (replace(other, offer=Offer(price=2.0)), works)]
    for most, back in ((3.0, set()), (4.0, {"a"})):
        made = plan(snapshot(config(SMALL, budgets=Budgets(max_hourly_price=most)), *pairs))
        assert (set(made.recalls), made.removals) == (back, ())


def test_what_is_given_up_does_not_block_its_replacement() -> None:
    kind = replace(SMALL, min_workers=1, max_workers=1)
    made = plan(snapshot(config(kind), draining("a", Cause.UNWANTED, busy=True)))
    assert [launch.count for launch in made.launches] == [1]
