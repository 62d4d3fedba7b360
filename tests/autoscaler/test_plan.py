"""What is launched for shapes, for the minimum and for explicit requests, and which wishes are cancelled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.demand import Shape
from autoscaler.instances import InstanceState
from autoscaler.offerings import Offerings
from autoscaler.plan import EXPLICIT, MINIMUM, Plan, plan
from autoscaler.provider import SPOT, Capacity, NodeType, Offer
from autoscaler.scale_down import Way
from runtime._core.resources import to_units
from tests.autoscaler.build import (
    BIG,
    GPU,
    HEAD,
    NOW,
    SMALL,
    config,
    gang,
    instance,
    launched,
    node,
    running,
    shape,
    snapshot,
)

S = InstanceState
ALL = config(SMALL, BIG, GPU, upscaling_speed=100.0)


# ---------------------------------------------------------------- shapes


def test_nothing_asked_nothing_done() -> None:
    assert plan(snapshot(ALL, running("a"))) == Plan()


@pytest.mark.parametrize(
    ("wanted", "count", "expected"),
    [
        (shape(CPU=1), 1, {"small": 1}),
        (shape(CPU=1), 2, {"small": 1}),
        (shape(CPU=2), 3, {"small": 3}),
        (shape(CPU=8), 3, {"big": 3}),
        (shape(CPU=1), 8, {"big": 1}),
        (shape(CPU=1), 10, {"big": 1, "small": 1}),
        (shape(GPU=1), 2, {"gpu": 1}),
        (shape(GPU=0.5), 4, {"gpu": 1}),
        (shape(CPU=8, GPU=2), 3, {"gpu": 3}),
        (shape(CPU=3), 1, {"big": 1}),
    ],
)
def test_new_machines_for_shapes(wanted: Shape, count: int, expected: dict[str, int]) -> None:
    result = plan(snapshot(ALL, shapes=[(wanted, count)]))
    total = launched(result)
    assert total.keys() == expected.keys()
    held = sum(
        n * min(to_units(k.resources).get(name, 0) // amount for name, amount in wanted.resources)
        for k in (SMALL, BIG, GPU)
        for n in [total.get(k.name, 0)]
    )
    assert held >= count
    assert total == expected or sum(total.values()) == sum(expected.values())


def test_free_nodes_come_first() -> None:
    assert launched(plan(snapshot(ALL, running("a"), shapes=[(shape(CPU=1), 2)]))) == {}
    assert launched(plan(snapshot(ALL, running("a"), shapes=[(shape(CPU=1), 3)]))) == {"small": 1}


def test_a_busy_node_is_no_room() -> None:
    assert launched(plan(snapshot(ALL, running("a", free={}), shapes=[(shape(CPU=1), 1)]))) == {"small": 1}


def test_the_head_works_too() -> None:
    head = node("head", HEAD, is_head=True)
    assert launched(plan(snapshot(ALL, nodes=[head], shapes=[(shape(CPU=1), 1)]))) == {}


@pytest.mark.parametrize("state", [S.QUEUED, S.REQUESTED, S.ALLOCATED, S.SETTING_UP])
def test_machines_on_their_way_count_once(state: S) -> None:
    coming = instance("a", BIG, state)
    assert launched(plan(snapshot(ALL, instances=[coming], shapes=[(shape(CPU=1), 8)]))) == {}
    assert sum(launched(plan(snapshot(ALL, instances=[coming], shapes=[(shape(CPU=1), 9)]))).values()) == 1


@pytest.mark.parametrize("state", [S.TERMINATING, S.TERMINATED, S.FAILED, S.CANCELLED])
def test_machines_that_leave_do_not_count(state: S) -> None:
    leaving = instance("a", BIG, state, node_id=b"a")
    one = snapshot(ALL, (leaving, node("a", BIG)), shapes=[(shape(CPU=8), 1)])
    assert launched(plan(one)) == {"big": 1}


@pytest.mark.parametrize("state", ["DRAINING", "DEAD"])
def test_nodes_that_leave_do_not_count(state: str) -> None:
    one = snapshot(ALL, nodes=[node("x", BIG, state=state, instance_id="")], shapes=[(shape(CPU=8), 1)])
    assert launched(plan(one)) == {"big": 1}


def test_a_node_started_by_hand_is_used_and_never_removed() -> None:
    by_hand = node("x", BIG, instance_id="", idle_since_s=1.0)
    result = plan(snapshot(ALL, nodes=[by_hand], shapes=[(shape(CPU=8), 1)]))
    assert result == Plan()
    assert plan(snapshot(ALL, nodes=[by_hand])) == Plan()


def test_a_running_instance_without_node_is_expected_back() -> None:
    assert launched(plan(snapshot(ALL, instances=[instance("a", BIG)], shapes=[(shape(CPU=8), 1)]))) == {}


def test_no_gpus_for_work_without() -> None:
    only = config(GPU, BIG)
    assert launched(plan(snapshot(only, shapes=[(shape(CPU=8), 1)]))) == {"big": 1}
    assert launched(plan(snapshot(config(GPU), shapes=[(shape(CPU=8), 1)]))) == {"gpu": 1}


def test_cpu_work_fills_up_gpu_machines_that_come_anyway() -> None:
    result = plan(snapshot(ALL, shapes=[(shape(CPU=1, GPU=1), 2), (shape(CPU=1), 6)]))
    assert launched(result) == {"gpu": 1}


def test_selectors_choose_the_type() -> None:
    tagged = replace(BIG, name="tagged", labels={"tier": "fast"})
    settings = config(SMALL, tagged)
    assert launched(plan(snapshot(settings, shapes=[(shape({"tier": "fast"}, CPU=1), 1)]))) == {"tagged": 1}
    assert launched(plan(snapshot(settings, shapes=[(shape({"tier": "!fast"}, CPU=1), 1)]))) == {"small": 1}


def test_price_per_work_decides() -> None:
    offers = {"small": [Offer("a", price=1.0)], "big": [Offer("a", price=2.0)]}
    assert launched(plan(snapshot(ALL, offers=offers, shapes=[(shape(CPU=1), 8)]))) == {"big": 1}
    offers = {"small": [Offer("a", price=1.0)], "big": [Offer("a", price=9.0)]}
    assert launched(plan(snapshot(ALL, offers=offers, shapes=[(shape(CPU=1), 8)]))) == {"small": 4}


def test_what_needs_memory_goes_beside_what_needs_cpus() -> None:
    lean = NodeType("lean", {"CPU": 16, "memory": 32}, max_workers=99)
    roomy = NodeType("roomy", {"CPU": 16, "memory": 128}, max_workers=99)
    offers = {"lean": [Offer(price=0.7)], "roomy": [Offer(price=1.0)]}
    wanted = [(shape(CPU=1, memory=12), 60), (shape(CPU=2, memory=1), 120)]
    result = plan(snapshot(config(lean, roomy, upscaling_speed=100.0), offers=offers, shapes=wanted))
    assert launched(result) == {"roomy": 6, "lean": 13}


@pytest.mark.parametrize(("price", "expected"), [(4.7, {"big": 1}), (4.9, {"small": 4})])
def test_a_group_that_wants_to_be_together_may_cost_a_little_more(
    price: float, expected: dict[str, int]
) -> None:
    offers = {"small": [Offer(price=1.0)], "big": [Offer(price=price)]}
    one = gang("PACK", *[shape(CPU=2)] * 4)
    assert launched(plan(snapshot(config(SMALL, BIG), offers=offers, gangs=[one]))) == expected
    apart = gang("SPREAD", *[shape(CPU=2)] * 4)
    assert launched(plan(snapshot(config(SMALL, BIG), offers=offers, gangs=[apart]))) == {"small": 4}


def test_the_next_offer_in_the_same_tick() -> None:
    kind = replace(SMALL, spot=True)
    offers = {"small": [Offer("a", SPOT, 0.1), Offer("b", price=1.0)]}
    penalties = Offerings()
    penalties.refused("small", Offer("a", SPOT), Capacity("none"), NOW)
    (launch,) = plan(
        snapshot(config(kind), offers=offers, penalties=penalties, shapes=[(shape(CPU=1), 1)])
    ).launches
    assert launch.offer.zone == "b"


def test_another_type_when_one_is_not_to_be_had() -> None:
    penalties = Offerings()
    penalties.refused("small", Offer(), Capacity("none"), NOW)
    assert launched(plan(snapshot(ALL, penalties=penalties, shapes=[(shape(CPU=1), 1)]))) == {"big": 1}


def test_nothing_to_be_had_says_so_and_when_to_look_again() -> None:
    penalties = Offerings()
    penalty = penalties.refused("small", Offer(), Capacity("none left in a"), NOW)
    result = plan(snapshot(config(SMALL), penalties=penalties, shapes=[(shape(CPU=1), 3)]))
    assert not result.launches
    assert result.next_s == penalty.until_s
    (note,) = result.waiting
    assert "none left in a" in note.why
    assert note.count == 3


SPOT_OR_NOT = replace(BIG, spot=True)
SPOT_OFFERS = {"big": [Offer("a", SPOT, 1.0), Offer("b", price=4.0), Offer("c", price=3.0)]}
MARKET = "ray.io/market-type"


@pytest.mark.parametrize(
    ("selector", "zone"),
    [
        ({}, "a"),
        ({MARKET: "on-demand"}, "c"),
        ({"ray.io/availability-zone": "b"}, "b"),
        ({"ray.io/node-group": "big"}, "a"),
        ({MARKET: "!spot", "ray.io/availability-zone": "!c"}, "b"),
    ],
)
def test_labels_choose_the_offer(selector: dict[str, str], zone: str) -> None:
    wanted = [(shape(selector, CPU=1), 1)]
    (launch,) = plan(snapshot(config(SPOT_OR_NOT), offers=SPOT_OFFERS, shapes=wanted)).launches
    assert launch.offer.zone == zone
    (launch,) = plan(
        snapshot(config(SPOT_OR_NOT), offers=SPOT_OFFERS, gangs=[gang("PACK", shape(selector, CPU=1))])
    ).launches
    assert launch.offer.zone == zone


def test_an_offer_that_does_not_exist_is_infeasible_and_one_that_rests_is_waited_for() -> None:
    penalties = Offerings()
    penalties.refused("big", Offer("a", SPOT), Capacity("no spot in a"), NOW)
    settings = config(SPOT_OR_NOT)
    for zone, word in (("a", "no spot in a"), ("z", "labels do not match")):
        wanted = [(shape({"ray.io/availability-zone": zone}, CPU=1), 1)]
        result = plan(snapshot(settings, offers=SPOT_OFFERS, penalties=penalties, shapes=wanted))
        assert not result.launches
        (note,) = (*result.waiting, *result.infeasible)
        assert word in note.why
        assert bool(result.waiting) == (zone == "a")


def test_the_first_selector_is_bought_for_and_a_fallback_when_there_is_none() -> None:
    fast = replace(BIG, name="fast", labels={"tier": "fast"})
    slow = replace(SMALL, name="slow", labels={"tier": "slow"})
    picky = Shape.of(to_units({"CPU": 1}), {"tier": "fast"}, [{"tier": "slow"}])
    wanted = [(picky, 1)]
    offers = {"fast": [Offer(price=9.0)], "slow": [Offer(price=0.1)]}
    assert launched(plan(snapshot(config(fast, slow), offers=offers, shapes=wanted))) == {"fast": 1}
    full = config(replace(fast, max_workers=0), slow)
    assert launched(plan(snapshot(full, offers=offers, shapes=wanted))) == {"slow": 1}


# ---------------------------------------------------------------- minimum, explicit


def test_the_minimum_is_launched_at_once() -> None:
    settings = config(replace(SMALL, min_workers=8), replace(BIG, min_workers=1))
    result = plan(snapshot(settings, running("a")))
    assert {(launch.node_type, launch.count, launch.reason) for launch in result.launches} == {
        ("small", 7, MINIMUM),
        ("big", 1, MINIMUM),
    }


@pytest.mark.parametrize("state", [S.QUEUED, S.REQUESTED, S.ALLOCATED, S.SETTING_UP, S.RUNNING])
def test_those_on_their_way_count_towards_the_minimum(state: S) -> None:
    settings = config(replace(SMALL, min_workers=1))
    assert launched(plan(snapshot(settings, instances=[instance("a", state=state)]))) == {}


@pytest.mark.parametrize("state", [S.DRAINING, S.TERMINATING, S.TERMINATED, S.FAILED])
def test_those_that_leave_are_replaced(state: S) -> None:
    settings = config(replace(SMALL, min_workers=1))
    assert launched(plan(snapshot(settings, instances=[instance("a", state=state)]))) == {"small": 1}


def test_the_minimum_serves_demand_too() -> None:
    settings = config(replace(BIG, min_workers=1), SMALL)
    assert launched(plan(snapshot(settings, shapes=[(shape(CPU=1), 8)]))) == {"big": 1}


def test_a_minimum_that_cannot_be_had_is_told() -> None:
    settings = config(replace(SMALL, min_workers=2))
    result = plan(snapshot(settings, held={"small": "setup failed once"}))
    assert result.waiting[0].why == "setup failed once"
    assert result.waiting[0].count == 2


def test_explicit_requests_are_measured_against_whole_nodes() -> None:
    busy = running("a", BIG, free={})
    assert launched(plan(snapshot(ALL, busy, explicit=[(shape(CPU=1), 8)]))) == {}
    result = plan(snapshot(ALL, busy, explicit=[(shape(CPU=1), 10)]))
    assert launched(result) == {"small": 1}
    assert result.launches[0].reason == EXPLICIT


def test_explicit_requests_keep_idle_nodes() -> None:
    idle = running("a", BIG, idle_since_s=NOW - 1000)
    assert plan(snapshot(ALL, idle, explicit=[(shape(CPU=1), 1)])).removals == ()
    assert len(plan(snapshot(ALL, idle)).removals) == 1


def test_explicit_requests_know_no_pace() -> None:
    settings = config(replace(SMALL, max_workers=50))
    assert launched(plan(snapshot(settings, explicit=[(shape(CPU=2), 40)]))) == {"small": 40}


def test_explicit_machines_serve_demand_too() -> None:
    result = plan(snapshot(ALL, explicit=[(shape(CPU=8), 1)], shapes=[(shape(CPU=1), 8)]))
    assert launched(result) == {"big": 1}


def test_an_infeasible_explicit_request() -> None:
    result = plan(snapshot(ALL, explicit=[(shape(CPU=100), 1)]))
    assert result.infeasible[0].demand.startswith("requested ")


# ---------------------------------------------------------------- wishes, time


def test_wishes_nobody_needs_are_cancelled() -> None:
    result = plan(snapshot(ALL, instances=[instance("a", state=S.QUEUED)]))
    assert [(r.instance_id, r.way) for r in result.removals] == [("a", Way.CANCEL)]
    needed = snapshot(ALL, instances=[instance("a", state=S.QUEUED)], shapes=[(shape(CPU=1), 1)])
    assert plan(needed).removals == ()


def test_out_of_time_gives_what_there_is() -> None:
    asked = iter([False] * 3 + [True] * 1000)
    shapes = [(shape(CPU=1 + n / 1000), 5) for n in range(200)]
    result = plan(
        snapshot(config(replace(BIG, max_workers=1000), max_workers=1000), shapes=shapes), lambda: next(asked)
    )
    assert result.is_partial
    assert any("took too long" in note.why for note in result.waiting)
    idle = snapshot(ALL, running("a", idle_since_s=1.0), gangs=[gang("PACK", shape(CPU=1))])
    assert plan(idle, lambda: True).removals == (), "nothing is removed on half the picture"
