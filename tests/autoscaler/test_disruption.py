from __future__ import annotations

from autoscaler.config import Budgets, Cause
from autoscaler.disruption import Disruptions
from autoscaler.instances import InstanceState
from tests.autoscaler.build import instance


def draining(*causes: Cause, **budgets: object) -> Disruptions:
    found = [
        instance(f"n{index}", state=InstanceState.DRAINING, cause=cause) for index, cause in enumerate(causes)
    ]
    return Disruptions.of(Budgets(**budgets), [*found, instance("works")])  # type: ignore[arg-type]


def test_idle_nodes_miss_nobody() -> None:
    now = draining(Cause.IDLE, Cause.BY_HAND, Cause.SURPLUS, max_disrupted=2)
    assert now.left(Cause.IDLE) is None
    assert now.left(Cause.SURPLUS) == now.left(Cause.OUTDATED) == 1
    assert now.take(Cause.OUTDATED)
    assert not now.take(Cause.SURPLUS)
    assert now.take(Cause.IDLE)


def test_a_cause_may_have_a_limit_of_its_own() -> None:
    limits = {Cause.IDLE: 1, Cause.OUTDATED: 1, Cause.SURPLUS: 50}
    now = draining(Cause.IDLE, max_disrupted=3, max_disrupted_by=limits)
    assert now.left(Cause.IDLE) == 0
    assert now.left(Cause.OUTDATED) == 1
    assert now.left(Cause.SURPLUS) == 3, "within the limit of all"
    assert [now.take(Cause.SURPLUS) for _ in range(4)] == [True, True, True, False]
    assert not now.take(Cause.OUTDATED)
