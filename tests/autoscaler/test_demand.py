from __future__ import annotations

import msgspec
import pytest

from autoscaler.demand import ExplicitRequest, Gang, Shape, demand_of, lasting, scarcity
from runtime._core.placement import group_resources
from runtime._wire.messages.base import Demand, ResourceRequest, SchedulingStrategy
from runtime._wire.messages.control import ClusterState, PendingGroup, Requester
from tests.autoscaler.build import gang, node, shape

U = 10_000


def state(
    demands: list[Demand] | None = None,
    groups: list[PendingGroup] | None = None,
    requested: list[dict[str, int]] | None = None,
) -> ClusterState:
    return ClusterState(1, 0.0, [], demands or [], groups or [], requested or [])


def demand(count: int = 1, strategy: SchedulingStrategy | None = None, **amounts: int) -> Demand:
    units = {name: amount * U for name, amount in amounts.items()}
    return Demand(ResourceRequest(units, strategy or SchedulingStrategy()), count)


def test_order_and_zeros_do_not_matter() -> None:
    assert Shape.of({"a": 1, "b": 2, "c": 0}) == Shape.of({"b": 2, "a": 1})


def test_equal_requests_are_counted_together() -> None:
    found = demand_of(
        state([demand(3, CPU=1), demand(4, CPU=1, strategy=SchedulingStrategy("SPREAD")), demand(1, CPU=2)])
    )
    assert dict(found.shapes) == {shape(CPU=1): 7, shape(CPU=2): 1}


def test_selectors_make_another_shape() -> None:
    picky = SchedulingStrategy(labels={"zone": "a"})
    found = demand_of(state([demand(1, CPU=1), demand(1, picky, CPU=1)]))
    assert dict(found.shapes) == {shape(CPU=1): 1, shape({"zone": "a"}, CPU=1): 1}


def test_a_fallback_makes_more_nodes_good_enough() -> None:
    picky = SchedulingStrategy(labels={"zone": "a"}, fallbacks=[{"disk": "ssd"}])
    ((found, _),) = demand_of(state([demand(1, picky, CPU=1)])).shapes
    assert found.accepts({"zone": "a"})
    assert found.accepts({"zone": "b", "disk": "ssd"})
    assert not found.accepts({"zone": "b"})
    assert demand_of(state([demand(1, picky, CPU=1)])).label_keys == {"zone", "disk"}


def test_hard_affinity_asks_for_no_machine_and_keeps_its_node() -> None:
    found = demand_of(state([demand(5, SchedulingStrategy("NODE_AFFINITY", b"n"), CPU=1)]))
    assert found.shapes == ()
    assert found.pinned == {b"n"}


def test_soft_affinity_takes_any_node() -> None:
    found = demand_of(state([demand(5, SchedulingStrategy("NODE_AFFINITY", b"n", True), CPU=1)]))
    assert dict(found.shapes) == {shape(CPU=1): 5}
    assert found.pinned == {b"n"}


@pytest.mark.parametrize(("size", "busy", "count"), [(4, "WAIT", 0), (4, "SPILL", 5), (0, "WAIT", 5)])
def test_soft_affinity_waits_for_its_node_while_that_could_hold_it(size: int, busy: str, count: int) -> None:
    where = SchedulingStrategy("NODE_AFFINITY", b"n", True, busy=busy)
    picture = state([demand(5, where, CPU=1)])
    picture.nodes.append(node("n", total={"CPU": size}, free={}))
    assert dict(demand_of(picture).shapes) == ({shape(CPU=1): count} if count else {})


@pytest.mark.parametrize("count", [0, -1])
def test_nothing_is_no_demand(count: int) -> None:
    assert demand_of(state([demand(count, CPU=1)])).shapes == ()


def test_work_inside_a_group_is_left_out() -> None:
    inside = group_resources({"CPU": U}, "ab" * 18, 0)
    assert demand_of(state([Demand(ResourceRequest(inside), 3)])).shapes == ()


def test_groups_and_their_selectors() -> None:
    group = PendingGroup(b"g", "PACK", [{"CPU": U}, {"GPU": U}], [b"", b"n"], [{"zone": "a"}, {}])
    (found,) = demand_of(state(groups=[group])).gangs
    assert found == Gang(b"g", "PACK", (shape({"zone": "a"}, CPU=1), shape(GPU=1)), (b"", b"n"))
    assert found.missing == (shape({"zone": "a"}, CPU=1),)
    assert found.rest == shape({"zone": "a"}, CPU=1)


def test_explicit_requests_are_counted() -> None:
    found = demand_of(state(requested=[{"CPU": U}, {"CPU": U}, {"GPU": U}, {}]))
    assert dict(found.explicit) == {shape(CPU=1): 2, shape(GPU=1): 1}


def test_explicit_requests_may_choose_their_nodes() -> None:
    picture = msgspec.structs.replace(
        state(requested=[{"CPU": U}, {"CPU": U}]), requested_selectors=[{}, {"zone": "a"}]
    )
    assert dict(demand_of(picture).explicit) == {shape(CPU=1): 1, shape({"zone": "a"}, CPU=1): 1}


def test_names_and_label_keys_of_everything() -> None:
    group = PendingGroup(b"g", "PACK", [{"disk": U}], [], [{"tier": "x"}])
    found = demand_of(
        state([demand(1, SchedulingStrategy(labels={"zone": "!a"}), CPU=1)], [group], [{"GPU": U}])
    )
    assert found.names == {"CPU", "GPU", "disk"}
    assert found.label_keys == {"tier", "zone"}


@pytest.mark.parametrize(
    ("condition", "labels", "expected"),
    [
        ("a", {"k": "a"}, True),
        ("a", {"k": "b"}, False),
        ("a", {}, False),
        ("!a", {}, True),
        ("in(a,b)", {"k": "b"}, True),
        ("!in(a,b)", {"k": "b"}, False),
        ("in(a", {"k": "a"}, False),
        ("", {"k": ""}, True),
        ("", {}, False),
    ],
)
def test_selectors_accept_as_the_scheduler_does_and_broken_ones_nothing(
    condition: str, labels: dict[str, str], expected: bool
) -> None:
    assert shape({"k": condition}, CPU=1).accepts(labels) is expected


def test_hardest_first() -> None:
    largest = {"CPU": 8 * U, "GPU": 2 * U}
    easy, large, special, picky = shape(CPU=1), shape(CPU=8), shape(CPU=1, GPU=1), shape({"a": "b"}, CPU=1)
    ordered = sorted([easy, large, special, picky], key=lambda s: scarcity(s, largest))
    assert ordered[-2:] == [large, easy]
    assert set(ordered[:2]) == {special, picky}


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (shape(CPU=1), "{CPU: 1}"),
        (shape({"zone": "a"}, CPU=0.5), "{CPU: 0.5} with labels {zone: a}"),
        (
            gang("PACK", shape(CPU=1), shape(CPU=1), shape(GPU=1)),
            "placement group PACK [2 x {CPU: 1}, 1 x {GPU: 1}]",
        ),
    ],
)
def test_how_they_read(one: object, text: str) -> None:
    assert str(one) == text


def test_strictest_first() -> None:
    order = ["STRICT_PACK", "STRICT_SPREAD", "PACK", "SPREAD", "unknown"]
    assert [gang(strategy).strictness for strategy in order] == [0, 1, 2, 3, 4]


def test_requests_are_counted_by_owner_and_in_all() -> None:
    found = demand_of(
        ClusterState(
            1,
            0.0,
            [],
            [],
            [],
            requested=[{"CPU": U}, {"CPU": 2 * U}, {}, {"CPU": U}],
            requested_selectors=[{}, {"zone": "a"}, {}, {}],
            requested_counts=[50_000, 2, 1, 3],
            requesters=[Requester("a", 3, 60.0), Requester("b", 1, 0.0, b"job")],
        )
    )
    assert dict(found.explicit) == {shape(CPU=1): 50_003, shape({"zone": "a"}, CPU=2): 2}
    assert found.requests == (
        ExplicitRequest("a", ((shape(CPU=1), 50_000), (shape({"zone": "a"}, CPU=2), 2)), 60.0),
        ExplicitRequest("b", ((shape(CPU=1), 3),), 0.0, b"job"),
    )


def test_only_what_waits_before_and_after_lasts() -> None:
    before = [demand(5, CPU=1), demand(2, CPU=2), demand(1, GPU=1)]
    after = [demand(9, GPU=1), demand(3, CPU=1), demand(4, CPU=8)]
    assert lasting(state(before), state(after)).demands == [demand(3, CPU=1), demand(1, GPU=1)]


def test_a_node_that_turned_busy_was_not_idle() -> None:
    def nodes(**idle_since_s: float) -> ClusterState:
        return msgspec.structs.replace(
            state(), nodes=[node(name, idle_since_s=since) for name, since in idle_since_s.items()]
        )

    found = lasting(nodes(a=5.0, b=5.0, c=0.0, gone=5.0), nodes(a=5.0, b=0.0, c=6.0, new=6.0))
    assert [(one.node_id, one.idle_since_s) for one in found.nodes] == [
        (b"a", 5.0),
        (b"b", 0.0),
        (b"c", 0.0),
        (b"gone", 5.0),
    ]
