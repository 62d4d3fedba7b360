from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.budgets import PACE_FLOOR
from autoscaler.config import Budgets
from autoscaler.demand import Gang, Shape
from autoscaler.instances import InstanceState
from autoscaler.offerings import Offerings
from autoscaler.plan import DEMAND, EXPLICIT, MINIMUM, Plan, plan
from autoscaler.provider import SPOT, Capacity, NodeType, Offer
from autoscaler.scale_down import Way
from autoscaler.status import demand_notes, group_notes
from runtime._core.placement import Fit, NodeView, Request, choose_node
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
    node,
    running,
    shape,
    snapshot,
)

S = InstanceState
ALL = config(SMALL, BIG, GPU, upscaling_speed=100.0)


def launched(result: Plan) -> dict[str, int]:
    counts: dict[str, int] = {}
    for launch in result.launches:
        counts[launch.node_type] = counts.get(launch.node_type, 0) + launch.count
    return counts


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


# ---------------------------------------------------------------- limits


def test_never_above_the_types_maximum() -> None:
    settings = config(replace(SMALL, max_workers=3), upscaling_speed=100.0)
    result = plan(snapshot(settings, running("a", free={}), shapes=[(shape(CPU=2), 50)]))
    assert launched(result) == {"small": 2}
    assert "max_workers 3" in result.waiting[0].why
    assert result.waiting[0].count == 48
    assert not result.infeasible


def test_never_above_the_clusters_maximum() -> None:
    settings = config(SMALL, BIG, max_workers=2, upscaling_speed=100.0)
    result = plan(snapshot(settings, shapes=[(shape(CPU=8), 5)]))
    assert launched(result) == {"big": 2}


def test_the_price_budget() -> None:
    settings = config(BIG, budgets=Budgets(max_hourly_price=7.0))
    offers = {"big": [Offer("a", price=3.0)]}
    result = plan(snapshot(settings, offers=offers, shapes=[(shape(CPU=8), 5)]))
    assert launched(result) == {"big": 2}
    assert "price budget" in result.waiting[0].why


def test_what_the_budget_does_not_allow_of_one_offer_it_may_of_the_next() -> None:
    settings = config(SPOT_OR_NOT, budgets=Budgets(max_hourly_price=8.0), upscaling_speed=100.0)
    offers = {"big": [Offer("a", SPOT, 3.0), Offer("b", price=1.0)]}
    result = plan(snapshot(settings, offers=offers, shapes=[(shape(CPU=8), 9)]))
    assert [(launch.offer.zone, launch.count) for launch in result.launches] == [("a", 2), ("b", 2)]
    assert [note.count for note in result.waiting] == [5]


def test_what_the_pace_puts_off_is_told() -> None:
    settings = config(replace(SMALL, max_workers=90), upscaling_speed=1.0)
    result = plan(snapshot(settings, shapes=[(shape(CPU=1), 60)]))
    (note,) = result.waiting
    assert note.count == 60 - 2 * PACE_FLOOR
    assert "upscaling_speed 1" in note.why


def test_a_group_that_the_pace_puts_off_is_told_and_so_is_what_would_fill_its_machines() -> None:
    settings = config(replace(BIG, max_workers=90), upscaling_speed=1.0)
    one = gang("STRICT_SPREAD", *[shape(CPU=6)] * 7)
    result = plan(snapshot(settings, gangs=[one], shapes=[(shape(CPU=1), 14)]))
    assert launched(result) == {"big": PACE_FLOOR}
    assert {(note.demand, note.count) for note in result.waiting} == {(str(one), 1), ("{CPU: 1}", 4)}


def test_what_the_breaker_puts_off_is_told() -> None:
    settings = config(replace(BIG, min_workers=2), upscaling_speed=100.0)
    result = plan(snapshot(settings, shapes=[(shape(CPU=8), 5)], explicit=[(shape(CPU=8), 3)], allowance=1))
    assert launched(result) == {"big": 1}
    assert {(note.demand, note.count) for note in result.waiting} == {
        ("min_workers of 'big'", 1),
        ("requested {CPU: 8}", 2),
        ("{CPU: 8}", 4),
    }
    assert all("failed their setup" in note.why for note in result.waiting)


def test_requests_that_count_on_machines_put_off_are_told() -> None:
    settings = config(replace(BIG, min_workers=2))
    result = plan(snapshot(settings, explicit=[(shape(CPU=1), 16)], allowance=1))
    assert {(note.demand, note.count) for note in result.waiting} == {
        ("min_workers of 'big'", 1),
        ("requested {CPU: 1}", 8),
    }


def test_growth_has_a_pace() -> None:
    settings = config(replace(SMALL, max_workers=90), upscaling_speed=1.0)
    assert launched(plan(snapshot(settings, shapes=[(shape(CPU=2), 60)]))) == {"small": PACE_FLOOR}
    crowd = [running(f"n{i}", free={}) for i in range(20)]
    assert launched(plan(snapshot(settings, *crowd, shapes=[(shape(CPU=2), 60)]))) == {"small": 20}


def test_the_breaker() -> None:
    assert launched(plan(snapshot(ALL, shapes=[(shape(CPU=8), 5)], allowance=0))) == {}
    assert launched(plan(snapshot(ALL, shapes=[(shape(CPU=8), 5)], allowance=1))) == {"big": 1}


def test_a_resting_type_is_passed_over() -> None:
    result = plan(snapshot(ALL, shapes=[(shape(CPU=1), 1)], held={"small": "setup failed once"}))
    assert launched(result) == {"big": 1}
    result = plan(snapshot(config(SMALL), shapes=[(shape(CPU=1), 1)], held={"small": "setup failed once"}))
    assert "setup failed once" in result.waiting[0].why


# ---------------------------------------------------------------- infeasible


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (shape(CPU=9), "'big': CPU 9 wanted, 8 there"),
        (shape(GPU=3), "'gpu': GPU 3 wanted, 2 there"),
        (shape(unicorn=1), "unicorn 1 wanted, 0 there"),
        (shape({"tier": "fast"}, CPU=1), "labels do not match"),
        (shape({"tier": "in("}, CPU=1), "labels do not match"),
    ],
)
def test_infeasible_work_is_told_with_the_nearest_type(wanted: Shape, words: str) -> None:
    result = plan(snapshot(ALL, shapes=[(wanted, 4), (shape(CPU=1), 1)]))
    (note,) = result.infeasible
    assert words in note.why
    assert note.count == 4
    assert launched(result) == {"small": 1}, "the others are served all the same"


def test_what_a_node_of_today_can_hold_is_feasible() -> None:
    giant = node("x", total={"CPU": 64.0}, free={}, instance_id="")
    result = plan(snapshot(ALL, nodes=[giant], shapes=[(shape(CPU=32), 1)]))
    assert not result.infeasible
    assert result.waiting


def test_a_type_without_workers_is_no_hope() -> None:
    result = plan(snapshot(config(), shapes=[(shape(CPU=1), 1)]))
    assert "max_workers is 0" in result.infeasible[0].why


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


# ---------------------------------------------------------------- groups


@pytest.mark.parametrize(
    ("strategy", "bundles", "expected"),
    [
        ("STRICT_PACK", [shape(CPU=2)] * 4, {"big": 1}),
        ("PACK", [shape(CPU=1)] * 2, {"small": 1}),
        ("SPREAD", [shape(CPU=1)] * 2, {"small": 1}),
        ("STRICT_SPREAD", [shape(CPU=1)] * 3, {"small": 3}),
        ("STRICT_SPREAD", [shape(CPU=8)] * 2, {"big": 2}),
        ("PACK", [shape(GPU=1), shape(GPU=1), shape(CPU=1)], {"gpu": 1}),
        ("PACK", [shape(CPU=8), shape(GPU=2, CPU=8)], {"gpu": 1, "big": 1}),
        ("SPREAD", [shape(GPU=1), *[shape(CPU=4)] * 9], {"gpu": 1, "big": 4}),
        ("STRICT_SPREAD", [shape(GPU=1), shape(CPU=1), shape(CPU=8)], {"gpu": 1, "small": 1, "big": 1}),
    ],
)
def test_machines_for_a_group(strategy: str, bundles: list[Shape], expected: dict[str, int]) -> None:
    assert launched(plan(snapshot(ALL, gangs=[gang(strategy, *bundles)]))) == expected


def test_a_group_on_free_nodes() -> None:
    pairs = [running(f"n{i}") for i in range(3)]
    assert launched(plan(snapshot(ALL, *pairs, gangs=[gang("STRICT_SPREAD", *[shape(CPU=1)] * 3)]))) == {}


def test_only_what_is_missing_is_launched() -> None:
    pairs = [running(f"n{i}") for i in range(2)]
    assert launched(plan(snapshot(ALL, *pairs, gangs=[gang("STRICT_SPREAD", *[shape(CPU=1)] * 3)]))) == {
        "small": 1
    }


def test_a_lost_bundle_alone_is_placed_again() -> None:
    pair = running("n0", free={"CPU": 1})
    one = gang("STRICT_SPREAD", shape(CPU=1), shape(CPU=1), placed=(b"n0", b""))
    assert launched(plan(snapshot(ALL, pair, gangs=[one]))) == {"small": 1}


def test_a_group_comes_whole_or_not_at_all() -> None:
    settings = config(replace(SMALL, max_workers=2), upscaling_speed=100.0)
    result = plan(
        snapshot(settings, running("a", free={}), gangs=[gang("STRICT_SPREAD", *[shape(CPU=1)] * 2)])
    )
    assert launched(result) == {}
    assert "max_workers 2" in result.waiting[0].why


def test_types_are_mixed_when_one_alone_does_not_do() -> None:
    a = NodeType("a", {"x": 1.0}, max_workers=1)
    b = NodeType("b", {"y": 1.0}, max_workers=1)
    assert launched(plan(snapshot(config(a, b), gangs=[gang("PACK", shape(x=1), shape(y=1))]))) == {
        "a": 1,
        "b": 1,
    }


def test_what_drivers_are_told() -> None:
    groups = [gang("STRICT_PACK", shape(CPU=99))]
    result = plan(
        snapshot(
            config(SMALL),
            shapes=[(shape(CPU=1), 1), (shape(CPU=98), 2)],
            gangs=groups,
            held={"small": "rests"},
        )
    )
    assert {demand for demand, _ in demand_notes(result)} == {"{CPU: 98}", "{CPU: 1}"}
    assert ("{CPU: 1}", "'small': rests") in demand_notes(result)
    assert [group for group, _ in group_notes(result)] == [groups[0].id]


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (
            gang("STRICT_PACK", *[shape(CPU=5)] * 2),
            "together on one node: the nearest node type is 'big': CPU 10",
        ),
        (gang("PACK", shape(CPU=1), shape(CPU=99)), "bundle {CPU: 99}: the nearest node type is 'big'"),
        (gang("STRICT_SPREAD", *[shape(GPU=1)] * 11), "all of them do not within the limits"),
        (gang("NO_SUCH", shape(CPU=1)), "all of them do not"),
    ],
)
def test_infeasible_groups(one: Gang, words: str) -> None:
    result = plan(snapshot(ALL, gangs=[one, gang("PACK", shape(CPU=1), id=2)]))
    assert words in result.infeasible[0].why
    assert launched(result) == {"small": 1}


def test_groups_before_shapes() -> None:
    settings = config(replace(SMALL, max_workers=1))
    result = plan(snapshot(settings, gangs=[gang("PACK", shape(CPU=2))], shapes=[(shape(CPU=2), 1)]))
    assert launched(result) == {"small": 1}
    assert [note.demand for note in result.waiting] == ["{CPU: 2}"]


def test_what_a_group_leaves_serves_shapes() -> None:
    result = plan(
        snapshot(ALL, gangs=[gang("STRICT_PACK", shape(CPU=3), shape(CPU=3))], shapes=[(shape(CPU=1), 2)])
    )
    assert launched(result) == {"big": 1}


def test_many_equal_hopeless_groups_are_all_told() -> None:
    many = [gang("PACK", shape(CPU=99), id=n) for n in range(50)]
    assert len(plan(snapshot(ALL, gangs=many)).infeasible) == 50


def test_a_group_within_one_domain() -> None:
    a, b = (replace(BIG, name=name, labels={"rack": name}, max_workers=2) for name in "ab")
    busy = running("x", a, free={"CPU": 8})
    one = Gang(b"g" * 18, "STRICT_SPREAD", (shape(CPU=8),) * 3, (), "rack")
    assert plan(snapshot(config(a, b), busy, gangs=[one])).infeasible
    two = replace(one, bundles=(shape(CPU=8),) * 2)
    assert launched(plan(snapshot(config(a, b), busy, gangs=[two]))) == {"a": 1}


def test_a_group_with_a_selector() -> None:
    tagged = replace(BIG, name="tagged", labels={"tier": "fast"})
    one = gang("PACK", shape({"tier": "fast"}, CPU=1))
    assert launched(plan(snapshot(config(SMALL, tagged), gangs=[one]))) == {"tagged": 1}


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


# ---------------------------------------------------------------- properties


def kind_of(cpu: int, gpu: int, most: int, least: int) -> NodeType:
    resources = {"CPU": float(cpu)} | ({"GPU": float(gpu)} if gpu else {})
    return NodeType("", resources, min_workers=min(least, most), max_workers=most)


KINDS = st.lists(
    st.builds(kind_of, st.integers(1, 16), st.integers(0, 4), st.integers(0, 8), st.integers(0, 2)),
    min_size=1,
    max_size=4,
).map(lambda kinds: tuple(replace(kind, name=f"t{i}") for i, kind in enumerate(kinds)))
SHAPES = st.lists(
    st.tuples(
        st.builds(lambda c, g: shape(CPU=c, GPU=g), st.integers(1, 20), st.integers(0, 3)),
        st.integers(1, 60),
    ),
    max_size=6,
    unique_by=lambda entry: entry[0],
)
GANGS = st.lists(
    st.builds(
        lambda s, c, n: (s, shape(CPU=c), n),
        st.sampled_from(["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]),
        st.integers(1, 6),
        st.integers(1, 4),
    ),
    max_size=3,
).map(lambda found: [gang(s, *[one] * n, id=i) for i, (s, one, n) in enumerate(found)])


@settings(max_examples=200, deadline=None)
@given(KINDS, SHAPES, GANGS, st.integers(0, 12), st.integers(0, 6))
def test_limits_hold_and_what_is_launched_is_of_use(
    kinds: tuple[NodeType, ...], shapes: list[tuple[Shape, int]], gangs: list[Gang], most: int, there: int
) -> None:
    setup = config(*kinds, max_workers=most, upscaling_speed=1000.0)
    pairs = [running(f"n{i}", kinds[0], free={}) for i in range(min(there, kinds[0].max_workers, most))]
    picture = snapshot(setup, *pairs, shapes=shapes, gangs=gangs)
    result = plan(picture)
    counts = launched(result)
    for kind in kinds:
        mine = len(pairs) if kind is kinds[0] else 0
        assert counts.get(kind.name, 0) + mine <= max(kind.max_workers, mine)
    assert sum(counts.values()) + len(pairs) <= max(most, len(pairs))
    by_name = {kind.name: kind for kind in kinds}
    wanted = [one for one, _ in shapes]
    for launch in result.launches:
        if launch.reason == DEMAND:
            total = to_units(by_name[launch.node_type].resources)
            view = NodeView(b"new", total, dict(total))
            verdicts = [
                choose_node(Request(dict(one.resources)), [view], rng=random.Random(0)).fit for one in wanted
            ]
            assert Fit.AVAILABLE in verdicts
    assert plan(picture) == result, "the same picture gives the same plan"


@settings(max_examples=100, deadline=None)
@given(KINDS, SHAPES, GANGS)
def test_planning_comes_to_rest(
    kinds: tuple[NodeType, ...], shapes: list[tuple[Shape, int]], gangs: list[Gang]
) -> None:
    """With everything launched and on its way the next plan launches nothing more."""
    setup = config(*kinds, upscaling_speed=1000.0)
    coming = []
    for round_number in range(4):
        result = plan(snapshot(setup, shapes=shapes, gangs=gangs, instances=coming))
        if not result.launches:
            return
        for launch in result.launches:
            coming += [
                instance(
                    f"{round_number}-{launch.node_type}-{launch.reason}-{i}", launch.node_type, S.REQUESTED
                )
                for i in range(launch.count)
            ]
    pytest.fail(f"still launching: {result.launches}")
