"""Machines are paid from their creation until they are gone."""

from __future__ import annotations

from autoscaler.provider import SPOT, Machine, MachineState, Offer
from autoscaler.rehearsal.meter import Meter


def machine(name: str, market: str = "on-demand", zone: str = "a") -> Machine:
    return Machine(name, MachineState.PENDING, "small", {}, zone=zone, market=market)


def test_each_machine_costs_what_its_offer_says_while_it_exists() -> None:
    meter = Meter({"small": (Offer("a", price=1.0), Offer("a", SPOT, 0.25))})
    first, second, spot = machine("1"), machine("2"), machine("3", SPOT)
    assert meter.watch((first, spot), 1000.0) == ([first, spot], 0)
    assert meter.watch((first, second), 2800.0) == ([second], 1)
    assert meter.watch((second,), 4600.0) == ([], 1)
    assert meter.seconds_by_type(4600.0) == {"small": 3600.0 + 1800.0 + 1800.0}
    assert meter.cost_by_type(4600.0) == {"small": 1.0 + 0.125 + 0.5}
    assert meter.cost_by_type(8200.0) == {"small": 1.0 + 0.125 + 1.5}
    assert meter.watch((), 8200.0) == ([], 1)
    assert meter.cost_by_type(99999.0) == {"small": 2.625}


def test_what_has_no_offer_costs_nothing() -> None:
    meter = Meter({})
    meter.watch((machine("1"),), 0.0)
    assert meter.cost_by_type(3600.0) == {"small": 0.0}
    assert meter.seconds_by_type(3600.0) == {"small": 3600.0}
