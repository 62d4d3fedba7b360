from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.budgets import PACE_S, Limits, pace
from autoscaler.config import Budgets
from autoscaler.instances import COUNTED, InstanceState
from autoscaler.provider import Offer
from tests.autoscaler.build import BIG, SMALL, config, instance

S = InstanceState


@pytest.mark.parametrize("state", list(S))
def test_what_counts_against_the_maximum(state: S) -> None:
    limits = Limits.of(config(SMALL), [instance("a", state=state)])
    assert limits.room("small") == (9 if state in COUNTED else 10)


def test_the_cluster_has_a_maximum_too() -> None:
    limits = Limits.of(config(SMALL, BIG, max_workers=3), [instance("a"), instance("b", BIG)])
    assert limits.room("small") == 1
    limits.take("small", 1)
    assert limits.room("big") == 0
    assert "max_workers 3" in limits.why("big")


def test_unknown_types_have_no_room() -> None:
    limits = Limits.of(config(SMALL), [])
    assert limits.room("nothing") == 0
    assert "does not exist" in limits.why("nothing")


def test_the_head_type_has_no_workers_unless_allowed() -> None:
    limits = Limits.of(config(SMALL), [])
    assert limits.room("head") == 0
    assert "max_workers 0" in limits.why("head")


@pytest.mark.parametrize(("price", "room"), [(0.0, 10), (1.0, 6), (2.0, 3), (4.0, 1), (7.0, 0)])
def test_the_price_budget(price: float, room: int) -> None:
    settings = config(SMALL, budgets=Budgets(max_hourly_price=10.0))
    limits = Limits.of(settings, [instance("a", BIG, offer=Offer(price=4.0))])
    assert limits.room("small", price) == room
    if not room:
        assert "price budget" in limits.why("small", price)


def test_a_copy_is_its_own() -> None:
    limits = Limits.of(config(SMALL), [])
    limits.copy().take("small", 10)
    assert limits.room("small") == 10


@pytest.mark.parametrize(
    ("running", "flying", "speed", "expected"),
    [
        (0, 0, 1.0, 5),
        (0, 5, 1.0, 0),
        (0, 2, 50.0, 48),
        (10, 0, 1.0, 10),
        (10, 3, 2.0, 17),
        (3, 0, 0.0, 5),
        (100, 0, 0.1, 10),
    ],
)
def test_the_pace(running: int, flying: int, speed: float, expected: int) -> None:
    settings = config(replace(SMALL, max_workers=1000), upscaling_speed=speed)
    instances = [instance(f"r{n}") for n in range(running)]
    instances += [instance(f"f{n}", state=S.SETTING_UP) for n in range(flying)]
    assert pace(settings, instances, 0.0)["small"] == expected


@pytest.mark.parametrize(("running", "expected"), [(0, 0), (1, 5), (8, 8)])
def test_what_is_long_on_its_way_slows_only_a_type_that_never_joined(running: int, expected: int) -> None:
    settings = config(replace(SMALL, max_workers=1000))
    instances = [instance(f"r{n}") for n in range(running)]
    instances += [instance(f"f{n}", state=S.SETTING_UP, since_s=0.0) for n in range(5)]
    assert pace(settings, instances, PACE_S)["small"] == expected
