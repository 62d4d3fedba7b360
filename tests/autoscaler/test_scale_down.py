from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from autoscaler import scale_down
from autoscaler.config import Budgets
from autoscaler.disruption import Disruptions
from autoscaler.instances import Instance, InstanceState
from autoscaler.provider import NodeType, Offer
from autoscaler.scale_down import Idle, Removal, Way, cancellations, is_outdated
from autoscaler.snapshot import Snapshot
from runtime._wire.messages.base import NodeInfo
from tests.autoscaler.build import BIG, NOW, SMALL, config, instance, node, running, snapshot

S = InstanceState
LONG = NOW - 61.0
SHORT = NOW - 59.0


def idle(picture: Snapshot, used: Collection[str], leaving: Collection[str]) -> Idle:
    return scale_down.idle(picture, used, leaving, Disruptions.of(picture.config.budgets, picture.instances))


def surplus(picture: Snapshot) -> list[Removal]:
    return scale_down.surplus(picture, Disruptions.of(picture.config.budgets, picture.instances))


# ---------------------------------------------------------------- idle


def test_idle_beyond_the_timeout_goes() -> None:
    result = idle(snapshot(config(SMALL), running("a", idle_since_s=LONG)), set(), set())
    (removal,) = result.removals
    assert (removal.instance_id, removal.way, removal.only_if_idle) == ("a", Way.DRAIN, True)
    assert "idle for 61 s" in removal.reason


def test_idle_for_less_stays_and_the_time_is_known() -> None:
    result = idle(snapshot(config(SMALL), running("a", idle_since_s=SHORT)), set(), set())
    assert result.removals == ()
    assert result.next_s == SHORT + 60.0


def test_busy_stays() -> None:
    assert idle(snapshot(config(SMALL), running("a")), set(), set()) == idle(
        snapshot(config(SMALL)), set(), set()
    )


@pytest.mark.parametrize(("since", "goes"), [(NOW - 6, True), (NOW - 4, False)])
def test_a_type_may_have_its_own_timeout(since: float, goes: bool) -> None:
    settings = config(replace(SMALL, idle_timeout_s=5.0))
    assert bool(idle(snapshot(settings, running("a", idle_since_s=since)), set(), set()).removals) is goes


def test_a_timeout_of_zero_means_at_once() -> None:
    settings = config(replace(SMALL, idle_timeout_s=0.0))
    assert idle(snapshot(settings, running("a", idle_since_s=NOW)), set(), set()).removals


@pytest.mark.parametrize(("least", "gone"), [(0, 3), (1, 2), (2, 1), (3, 0)])
def test_never_below_the_minimum(least: int, gone: int) -> None:
    settings = config(replace(SMALL, min_workers=least))
    pairs = [running(f"n{i}", idle_since_s=LONG - i) for i in range(3)]
    removals = idle(snapshot(settings, *pairs), set(), set()).removals
    assert len(removals) == gone
    assert [r.instance_id for r in removals] == ["n2", "n1", "n0"][:gone], "the longest idle go first"


def test_those_on_their_way_count_for_the_minimum() -> None:
    settings = config(replace(SMALL, min_workers=1))
    coming = instance("b", state=S.SETTING_UP)
    assert (
        len(
            idle(
                snapshot(settings, running("a", idle_since_s=LONG), instances=[coming]), set(), set()
            ).removals
        )
        == 1
    )


def test_what_demand_would_use_stays() -> None:
    picture = snapshot(config(SMALL), running("a", idle_since_s=LONG))
    assert idle(picture, {b"a".hex()}, set()).removals == ()
    assert idle(picture, set(), {"a"}).removals == ()


def test_what_waiting_work_names_stays() -> None:
    picture = snapshot(config(SMALL), running("a", idle_since_s=LONG), pinned=[b"a"])
    assert idle(picture, set(), set()).removals == ()


@pytest.mark.parametrize("state", [s for s in S if s is not S.RUNNING])
def test_only_running_instances_are_drained(state: S) -> None:
    picture = snapshot(
        config(SMALL), (instance("a", state=state, node_id=b"a"), node("a", idle_since_s=LONG))
    )
    assert idle(picture, set(), set()).removals == ()


def test_a_refused_drain_rests() -> None:
    pair = (instance("a", not_before_s=NOW + 3), node("a", idle_since_s=LONG))
    result = idle(snapshot(config(SMALL), pair), set(), set())
    assert result.removals == ()
    assert result.next_s == NOW + 3


# ---------------------------------------------------------------- outdated


@pytest.mark.parametrize(
    ("has", "wanted", "expected"), [("a", "b", True), ("a", "a", False), ("", "b", False), ("a", "", False)]
)
def test_outdated(has: str, wanted: str, expected: bool) -> None:
    settings = config(SMALL, config_hashes={"small": wanted} if wanted else {})
    assert is_outdated(instance("x", config_hash=has), snapshot(settings)) is expected


def test_outdated_nodes_go_when_idle_even_at_the_minimum() -> None:
    settings = config(replace(SMALL, min_workers=1), config_hashes={"small": "new"})
    old = instance("a", config_hash="old")
    assert idle(snapshot(settings, (old, node("a", idle_since_s=NOW))), set(), set()).removals[0].reason
    assert idle(snapshot(settings, (old, node("a"))), set(), set()).removals == ()


def test_outdated_nodes_go_a_few_at_a_time() -> None:
    settings = config(
        replace(SMALL, min_workers=5), config_hashes={"small": "new"}, budgets=Budgets(max_disrupted=2)
    )
    pairs = [(instance(f"n{i}", config_hash="old"), node(f"n{i}", idle_since_s=NOW)) for i in range(5)]
    assert len(idle(snapshot(settings, *pairs), set(), set()).removals) == 2


# ---------------------------------------------------------------- surplus


def crowd(**states: S) -> list[Instance]:
    return [instance(name, state=state) for name, state in states.items()]


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (6, []),
        (5, [("queued", Way.CANCEL)]),
        (4, [("queued", Way.CANCEL)]),
        (3, [("queued", Way.CANCEL), ("allocated", Way.TERMINATE)]),
        (2, [("queued", Way.CANCEL), ("allocated", Way.TERMINATE), ("setting", Way.TERMINATE)]),
    ],
)
def test_the_least_useful_go_first(most: int, expected: list[tuple[str, Way]]) -> None:
    """A machine just asked for is counted as going, and removed when it is there."""
    instances = crowd(
        idle=S.RUNNING,
        busy=S.RUNNING,
        setting=S.SETTING_UP,
        allocated=S.ALLOCATED,
        requested=S.REQUESTED,
        queued=S.QUEUED,
    )
    nodes = [node("idle", idle_since_s=NOW), node("busy")]
    settings = config(replace(SMALL, max_workers=most))
    found = surplus(snapshot(settings, instances=instances, nodes=nodes))
    assert [(r.instance_id, r.way) for r in found] == expected


def test_idle_ones_before_busy_ones_and_busy_ones_are_drained() -> None:
    settings = config(replace(SMALL, max_workers=1))
    picture = snapshot(settings, running("busy"), running("idle", idle_since_s=NOW))
    (removal,) = surplus(picture)
    assert (removal.instance_id, removal.way, removal.only_if_idle) == ("idle", Way.DRAIN, False)
    none = config(replace(SMALL, max_workers=0))
    assert len(surplus(snapshot(none, running("busy"), running("idle", idle_since_s=NOW)))) == 2


def test_instances_of_a_removed_type_go() -> None:
    (removal,) = surplus(snapshot(config(BIG), running("a")))
    assert "no node type" in removal.reason


def test_draining_ones_are_on_their_way_already() -> None:
    settings = config(replace(SMALL, max_workers=1))
    assert surplus(snapshot(settings, running("a"), (instance("b", state=S.DRAINING), node("b")))) == []


def test_the_cluster_maximum_spares_minimums_where_it_can() -> None:
    settings = config(replace(SMALL, min_workers=2), BIG, max_workers=2)
    pairs = [running("s1"), running("s2"), running("b1", BIG)]
    assert [r.instance_id for r in surplus(snapshot(settings, *pairs))] == ["b1"]
    less = replace(settings, max_workers=1)
    assert len(surplus(snapshot(less, *pairs))) == 2


def test_forced_drains_have_a_budget() -> None:
    settings = config(replace(SMALL, max_workers=0), budgets=Budgets(max_disrupted=3))
    assert len(surplus(snapshot(settings, *[running(f"n{i}") for i in range(9)]))) == 3


def test_what_costs_more_than_the_budget_goes_idle_ones_first_and_minimums_last() -> None:
    def priced(name: str, kind: NodeType, price: float, **more: float) -> tuple[Instance, NodeInfo]:
        one, info = running(name, kind, **more)  # type: ignore[arg-type]
        return replace(one, offer=Offer(price=price)), info

    def gone(most: float | None) -> list[str]:
        settings = config(replace(SMALL, min_workers=1), BIG, budgets=Budgets(max_hourly_price=most))
        pairs = [
            priced("free", BIG, 0.0),
            priced("small", SMALL, 1.0, idle_since_s=NOW),
            priced("busy", BIG, 3.0),
            priced("idle", BIG, 2.0, idle_since_s=NOW),
        ]
        return [removal.instance_id for removal in surplus(snapshot(settings, *pairs))]

    assert gone(None) == gone(6.0) == []
    assert gone(5.0) == ["idle"]
    assert gone(3.5) == ["idle", "busy"]
    assert gone(0.5) == ["idle", "busy", "small"]


# ---------------------------------------------------------------- cancellations


def test_wishes_above_the_minimum_that_nothing_uses() -> None:
    settings = config(replace(SMALL, min_workers=1))
    wishes = [instance(f"q{i}", state=S.QUEUED) for i in range(3)]
    picture = snapshot(settings, instances=wishes)
    assert len(cancellations(picture, set(), set())) == 2
    assert len(cancellations(picture, {"q0", "q1", "q2"}, set())) == 0
    assert cancellations(picture, set(), {"q0", "q1", "q2"}) == []


@pytest.mark.parametrize("state", [s for s in S if s is not S.QUEUED])
def test_what_was_asked_for_is_not_cancelled(state: S) -> None:
    assert cancellations(snapshot(config(SMALL), instances=[instance("a", state=state)]), set(), set()) == []
