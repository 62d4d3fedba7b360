"""Whoever waits is told why: from the platform's refusal, through plan and control store, to the driver's agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autoscaler.config import AutoscalerConfig, Budgets
from autoscaler.provider import ON_DEMAND, Offer, SetupError
from autoscaler.simulation import Faults, SimulatedProvider
from runtime._core.resources import to_units
from runtime._wire.messages.base import Demand, ResourceRequest, SchedulingStrategy
from tests.autoscaler.build import BIG, SMALL
from tests.autoscaler.test_loop import Rig, play, quick

NOTHING = Faults(stock={("small", "sim", ON_DEMAND): 0})


def told(
    wanted: Demand,
    settings: AutoscalerConfig,
    *parts: str,
    faults: Faults | None = None,
    price: float = 0.0,
    setup: SetupError | None = None,
) -> None:
    """The agent at which `wanted` waits hears a reason with all of `parts`."""

    async def scenario(rig: Rig) -> None:
        if price:
            offers = {kind.name: [Offer(price=price)] for kind in settings.node_types}
            rig.provider = SimulatedProvider("cluster", offers=offers)
        rig.setup.failure = setup
        rig.head.demands = [wanted]
        rig.head.busy = True
        async with rig.run():
            rig.head.report()
            await rig.until(lambda _: all(part in "".join(rig.head.notes.values()) for part in parts))

    play(scenario, settings, faults)


def tasks(cpus: float, count: int = 1, zones: Sequence[str] = ()) -> Demand:
    selectors = [{"zone": zone} for zone in zones]
    strategy = (
        SchedulingStrategy(labels=selectors[0], fallbacks=selectors[1:]) if zones else SchedulingStrategy()
    )
    return Demand(ResourceRequest(to_units({"CPU": cpus}), strategy), count)


def test_no_type_is_large_enough() -> None:
    told(tasks(99), quick(SMALL, BIG), "the nearest node type is 'big': CPU 99 wanted, 8 there")


def test_no_type_has_the_labels_nor_those_of_a_fallback() -> None:
    kind = replace(SMALL, labels={"zone": "c"})
    told(tasks(1, zones=["a", "b"]), quick(kind), "the nearest node type is 'small'", "labels")


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        (quick(replace(SMALL, max_workers=1)), "max_workers 1 of node type 'small' is reached"),
        (quick(SMALL, max_workers=1), "the cluster's max_workers 1 is reached"),
        (quick(SMALL, upscaling_speed=1.0, provider_timeout_s=60.0), "upscaling_speed"),
    ],
)
def test_a_limit_is_reached(settings: AutoscalerConfig, limit: str) -> None:
    slow = Faults(boot_s=600.0)
    told(tasks(2, 50), settings, limit, faults=slow)


def test_the_platform_has_none() -> None:
    told(tasks(2), quick(SMALL), "no machine of 'small' to be had", faults=NOTHING)


def test_setups_fail() -> None:
    told(tasks(2), quick(SMALL), "setup failed", setup=SetupError("pip install", "exit status 1"))


def test_the_budget_is_spent() -> None:
    settings = quick(SMALL, budgets=Budgets(max_hourly_price=3.0))
    told(tasks(2, 3), settings, "the price budget 3 per hour is reached", price=2.0)
