"""What a plan does not launch: limits, and what nobody can hold. It is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.budgets import PACE_FLOOR
from autoscaler.config import Budgets
from autoscaler.demand import Shape
from autoscaler.plan import plan
from autoscaler.provider import SPOT, Offer
from tests.autoscaler.build import (
    BIG,
    GPU,
    SMALL,
    config,
    gang,
    launched,
    node,
    running,
    shape,
    snapshot,
)

ALL = config(SMALL, BIG, GPU, upscaling_speed=100.0)


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
    settings = config(replace(BIG, spot=True), budgets=Budgets(max_hourly_price=8.0), upscaling_speed=100.0)
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
