"""A cluster that a burst made large, and a trickle of work keeps from being idle anywhere."""

from __future__ import annotations

from autoscaler.config import AutoscalerConfig, Consolidation
from autoscaler.provider import NodeType
from autoscaler.rehearsal.rehearse import Summary, rehearse
from autoscaler.rehearsal.trace import Offered, Tasks, Trace
from autoscaler.rehearsal.world import Timing

TRACE = Trace(
    tasks=[
        Tasks(resources={"CPU": 1}, count=80, duration_s=300.0),
        Tasks(at_s=400.0, resources={"CPU": 1}, count=5, duration_s=(60.0, 120.0), every_s=20.0, times=180),
    ],
    offers={"small": [Offered(price=0.2)]},
    seed=1,
)


def run(consolidation: Consolidation | None) -> Summary:
    config = AutoscalerConfig(
        "rehearsal",
        "rehearsal",
        (NodeType("head", {"CPU": 0}), NodeType("small", {"CPU": 4}, max_workers=40)),
        "head",
        40,
        idle_timeout_s=300.0,
        consolidation=consolidation,
    )
    summary = rehearse(config, TRACE, timing=Timing(boot_s=20.0, setup_s=10.0, stop_s=5.0)).summary
    assert summary.ended == "rest"
    assert not summary.unserved
    assert not summary.interrupted
    return summary


def test_it_costs_less_with_consolidation_and_nobody_waits_longer() -> None:
    without, with_it = run(None), run(Consolidation(after_s=60.0))
    assert with_it.cost < 0.75 * without.cost
    assert with_it.tally.launches == without.tally.launches, "nothing is launched again for what was moved"
    assert with_it.waited["all"].max_s <= without.waited["all"].max_s + 1.0
    assert with_it.finished == without.finished
