"""The report: what each explicit request has come to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from autoscaler.config import Budgets, Cause
from autoscaler.demand import Demand, ExplicitRequest, Shape
from autoscaler.instances import InstanceState as S
from autoscaler.plan import plan
from autoscaler.provider import Offer
from autoscaler.snapshot import Snapshot
from autoscaler.status import BudgetStatus, Report, Requested, budgets_of, report_of
from tests.autoscaler.build import BIG, NOW, SMALL, config, instance, running, shape, snapshot

ONE = config(SMALL, max_workers=1)


def requested(picture: Snapshot, *wanted: tuple[Shape, int]) -> Requested:
    demand = Demand(explicit=wanted, requests=(ExplicitRequest("me", wanted, 50.0, b"job"),))
    report = report_of(picture.config, picture.instances, demand, plan(picture), (), (), (), (), NOW)
    assert Report.from_json(report.to_json()) == report
    (found,) = report.requested
    assert (found.owner, found.job_id, found.expires_s) == ("me", b"job".hex(), 50.0)
    assert found.wanted == tuple((str(one), count) for one, count in wanted)
    return found


@pytest.mark.parametrize(
    ("wanted", "state", "why"),
    [
        ([(shape(CPU=1), 2)], "met", ""),
        ([(shape(CPU=1), 3)], "coming", ""),
        ([(shape(CPU=1), 2), (shape(CPU=8), 1)], "coming", ""),
        ([(shape(CPU=1), 500)], "waits", "max_workers"),
        ([(shape(CPU=1), 3), (shape(GPU=1), 1)], "infeasible", "GPU 1 wanted, 0 there"),
    ],
)
def test_a_request_is_met_or_says_why_not(wanted: Sequence[tuple[Shape, int]], state: str, why: str) -> None:
    busy = running("a", free={})  # its size counts, used or not
    found = requested(snapshot(config(SMALL, BIG), busy, explicit=wanted), *wanted)
    assert found.state == state
    assert why in found.why
    assert bool(why) == bool(found.why)


def test_one_that_is_met_beside_one_that_is_not() -> None:
    """What each owner is told is about its own."""
    mine, theirs = ((shape(CPU=2), 1),), ((shape(GPU=1), 1),)
    picture = snapshot(ONE, running("a"), explicit=[*mine, *theirs])
    assert requested(picture, *mine).state == "met"
    assert requested(picture, *theirs).state == "infeasible"


def test_budgets_count_what_is_paid_and_what_drains() -> None:
    found = [
        instance("a", offer=Offer(price=2.0)),
        instance("b", state=S.DRAINING, cause=Cause.IDLE, offer=Offer(price=1.0)),
        instance("c", state=S.DRAINING, cause=Cause.SURPLUS),
        instance("d", state=S.TERMINATING, offer=Offer(price=9.0)),
    ]
    assert budgets_of(Budgets(max_disrupted=3, max_disrupted_by={Cause.OUTDATED: 2}), found) == (
        BudgetStatus("price per hour", 3.0, None, False),
        BudgetStatus("drained at once", 1, 3, True),
        BudgetStatus("idle", 1, None, False),
        BudgetStatus("outdated", 0, 2, True),
        BudgetStatus("surplus", 1, None, False),
    )
