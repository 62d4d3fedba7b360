from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.config import AutoscalerConfig, Budgets, Cause, Consolidation
from autoscaler.demand import Shape
from autoscaler.instances import Instance, InstanceState
from autoscaler.loads import Load, loads_of
from autoscaler.plan import Plan, plan
from autoscaler.provider import NodeType, Offer
from autoscaler.snapshot import Snapshot
from runtime._core.resources import to_units
from runtime._wire.messages.base import Demand, NodeInfo, ResourceRequest, SchedulingStrategy
from runtime._wire.messages.control import ClusterState, Holding
from tests.autoscaler.build import BIG, HEAD, NOW, SMALL, config, instance, node, shape, snapshot

S = InstanceState
ONE = shape(CPU=1)
LONG = NOW - 601.0
NO_PRICE, CHEAP, DEAR = Offer(), Offer("z", price=1.0), Offer("z", price=5.0)
Worker = tuple[Instance, NodeInfo, Load]


def settings(*kinds: NodeType, **more: Any) -> AutoscalerConfig:
    more.setdefault("consolidation", Consolidation(after_s=600.0))
    return config(*kinds, **more)


def worker(
    name: str,
    kind: NodeType = BIG,
    *shapes: tuple[Shape, int],
    bound_by: str = "",
    offer: Offer = NO_PRICE,
    state: S = S.RUNNING,
    **more: Any,
) -> Worker:
    """A node that runs `shapes`; idle when there are none."""
    free = to_units(kind.resources)
    for one, count in shapes:
        for resource, amount in one.resources:
            free[resource] -= amount * count
    busy = bool(shapes or bound_by)
    info = node(
        name,
        kind,
        state="DRAINING" if state is S.DRAINING else "ALIVE",
        free={resource: amount / 10_000 for resource, amount in free.items()},
        idle_since_s=0.0 if busy else NOW,
    )
    return instance(name, kind, state, offer=offer, **more), info, Load(shapes, bound_by)


def see(
    chosen: AutoscalerConfig, workers: Sequence[Worker], spare: dict[str, float] | None = None, **more: Any
) -> Snapshot:
    """A picture in which all workers had room elsewhere for long, unless told otherwise."""
    return snapshot(
        chosen,
        *((one, info) for one, info, _ in workers),
        loads={info.node_id: load for _, info, load in workers if load.shapes or load.bound_by},
        spare_since_s={one.id: LONG for one, _, _ in workers} if spare is None else spare,
        **more,
    )


def gone(made: Plan) -> list[str]:
    assert all(r.cause is Cause.CONSOLIDATION for r in made.removals), made.removals
    return [removal.instance_id for removal in made.removals]


def test_it_is_an_opt_in() -> None:
    workers = [worker("a", BIG, (ONE, 1)), worker("b", BIG, (ONE, 4))]
    assert plan(see(config(BIG), workers)).removals == ()
    assert gone(plan(see(settings(BIG), workers))) == ["a"]


def test_the_emptier_one_goes_and_what_it_counts_on_stays() -> None:
    workers = [worker("a", BIG, (ONE, 2)), worker("b", BIG, (ONE, 1))]
    made = plan(see(settings(BIG), workers))
    assert gone(made) == ["b"]
    assert made.spare == {"b"}, "two nodes do not move to each other"
    assert "12% of it" in made.removals[0].reason


def test_no_node_is_drained_for_the_room_of_a_machine_that_is_only_launched() -> None:
    gpu = replace(BIG, name="gpu", resources={"CPU": 8, "GPU": 2})
    two, four = shape(CPU=2), shape(CPU=4)
    workers = [
        worker("s1", SMALL, (ONE, 1), offer=Offer("z", price=1.0)),
        worker("s2", SMALL, (two, 1), offer=Offer("z", price=1.0)),
        worker("g", gpu, (ONE, 1), (two, 1), (four, 1), offer=Offer("z", price=9.0)),
    ]
    chosen = settings(BIG, SMALL, gpu, consolidation=Consolidation(max_used=1.0))
    offers = {"big": [Offer("z", price=3.0)]}
    made = plan(see(chosen, workers, offers=offers))
    assert [launch.node_type for launch in made.launches] == ["big"], "for what the dear one runs"
    assert gone(made) == []


def test_of_equal_idle_nodes_the_one_idle_longest_is_removed() -> None:
    workers = [worker("dear", BIG, (ONE, 1), offer=Offer("z", price=5.0))]
    for name, idle_s in (("a", 100.0), ("b", 300.0), ("c", 200.0)):
        one = instance(name, SMALL, offer=Offer("z", price=1.0))
        workers.append((one, node(name, SMALL, idle_since_s=NOW - idle_s), Load()))
    picture = see(settings(BIG, SMALL, consolidation=Consolidation(max_used=1.0)), workers)
    turned = replace(picture, nodes=picture.nodes[::-1], instances=picture.instances[::-1])
    for seen in (picture, turned):
        causes = {removal.instance_id: removal.cause for removal in plan(seen).removals}
        assert causes == {"dear": Cause.CONSOLIDATION, "b": Cause.IDLE, "c": Cause.IDLE}


def test_only_after_a_while() -> None:
    workers = [worker("a", BIG, (ONE, 1)), worker("b", BIG, (ONE, 4))]
    made = plan(see(settings(BIG), workers, spare={"a": NOW - 599.0}))
    assert (gone(made), made.spare, made.next_s) == ([], {"a"}, NOW + 1.0)
    assert plan(see(settings(BIG), workers, spare={})).next_s == NOW + 600.0


@pytest.mark.parametrize("bound_by", ["an actor", "a driver", "a placement group", "objects"])
def test_what_cannot_go_elsewhere_holds_its_node(bound_by: str) -> None:
    workers = [worker("a", BIG, (ONE, 1), bound_by=bound_by), worker("b", BIG, (ONE, 6))]
    assert gone(plan(see(settings(BIG), workers))) == []


def test_much_used_nodes_stay() -> None:
    workers = [worker("a", BIG, (ONE, 5)), worker("b", BIG, (ONE, 5))]
    assert gone(plan(see(settings(BIG), workers))) == []
    workers = [worker("a", BIG, (ONE, 3)), worker("b", BIG, (ONE, 5))]
    assert gone(plan(see(settings(BIG), workers))) == ["a"]
    strict = settings(BIG, consolidation=Consolidation(max_used=0.3))
    assert gone(plan(see(strict, workers))) == []


def test_every_part_must_find_room() -> None:
    workers = [worker("a", BIG, (shape(CPU=3), 1)), worker("b", BIG, (ONE, 6)), worker("c", BIG, (ONE, 6))]
    assert gone(plan(see(settings(BIG), workers))) == [], "2 + 2 free CPUs are no 3"
    workers = [worker("a", BIG, (ONE, 3)), worker("b", BIG, (ONE, 6)), worker("c", BIG, (ONE, 6))]
    assert gone(plan(see(settings(BIG), workers))) == ["a"]


def test_labels_count() -> None:
    labelled = replace(BIG, labels={"disk": "fast"})
    picky = (shape({"disk": "fast"}, CPU=1), 1)
    chosen = settings(BIG, replace(labelled, name="fast"))
    a, b = worker("a", labelled, picky), worker("b", BIG, (ONE, 5))
    assert gone(plan(see(chosen, [a, b]))) == []
    assert gone(plan(see(chosen, [a, b, worker("c", labelled, (ONE, 5))]))) == ["a"]


def test_never_below_the_minimum_and_never_onto_what_goes_anyway() -> None:
    workers = [worker("a", BIG, (ONE, 1)), worker("b", BIG)]
    assert gone(plan(see(settings(BIG), workers))) == [], "the idle one goes by its timeout"
    assert gone(plan(see(settings(replace(BIG, min_workers=2)), workers))) == []
    assert gone(plan(see(settings(replace(BIG, min_workers=1)), workers))) == []
    two = [*workers, worker("c", BIG, (ONE, 6))]
    assert gone(plan(see(settings(replace(BIG, min_workers=1)), two))) == ["a"]


def test_the_head_and_nodes_started_by_hand_take_work_and_stay() -> None:
    a = worker("a", BIG, (ONE, 1))
    head = node("head", HEAD, is_head=True, instance_id="", idle_since_s=1.0)
    assert gone(plan(see(settings(BIG), [a], nodes=[head]))) == ["a"]


@pytest.mark.parametrize("limit", [{"max_disrupted": 1}, {"max_disrupted_by": {Cause.CONSOLIDATION: 1}}])
def test_within_the_budget(limit: dict[str, Any]) -> None:
    workers = [worker(f"n{i}", BIG, (ONE, 1)) for i in range(4)]
    assert len(gone(plan(see(settings(BIG), workers)))) == 3
    chosen = settings(BIG, budgets=Budgets(**limit))
    assert len(gone(plan(see(chosen, workers)))) == 1
    moving = worker("m", BIG, (ONE, 1), state=S.DRAINING, cause=Cause.CONSOLIDATION)
    assert gone(plan(see(chosen, [*workers, moving]))) == []


def test_nothing_begins_while_work_waits() -> None:
    workers = [worker("a", BIG, (ONE, 1)), worker("b", BIG, (ONE, 4))]
    made = plan(see(settings(BIG), workers, shapes=[(ONE, 1)]))
    assert (gone(made), made.spare) == ([], None)
    assert gone(plan(see(settings(BIG), workers, shapes=[(shape(CPU=99), 1)]))) == ["a"], (
        "it never will be served"
    )
    assert gone(plan(see(settings(BIG), workers, explicit=[(shape(CPU=8), 2)]))) == []
    assert gone(plan(see(settings(BIG), workers, pinned=[b"a", b"b"]))) == []


def test_what_a_move_counts_on_is_kept_until_it_is_done() -> None:
    chosen = settings(replace(BIG, min_workers=1), idle_timeout_s=0.0)
    moving = worker("a", BIG, (ONE, 1), state=S.DRAINING, cause=Cause.CONSOLIDATION, settled=True)
    idle = [worker("b", BIG), worker("c", BIG)]
    made = plan(see(chosen, [moving, *idle]))
    assert len(made.removals) == 1, "one of the two is kept for what moves, and for the minimum"
    assert len(plan(see(replace(chosen, consolidation=None), [moving, *idle])).removals) == 1
    free = settings(BIG, idle_timeout_s=0.0)
    assert len(plan(see(free, [moving, *idle])).removals) == 1
    assert len(plan(see(replace(free, consolidation=None), [moving, *idle])).removals) == 2


# ---------------------------------------------------------------- cheaper machines


OFFERS = {"big": [DEAR], "small": [CHEAP]}


def test_a_cheaper_machine_is_launched_then_the_dear_one_drained() -> None:
    chosen = settings(BIG, SMALL)
    dear = worker("a", BIG, (ONE, 1), offer=DEAR)
    made = plan(see(chosen, [dear], offers=OFFERS))
    assert [(one.node_type, one.count) for one in made.launches] == [("small", 1)]
    assert (gone(made), made.spare) == ([], {"a"})

    for state in (S.QUEUED, S.REQUESTED, S.SETTING_UP):
        coming = instance("b", SMALL, state, offer=CHEAP)
        made = plan(see(chosen, [dear], offers=OFFERS, instances=[coming]))
        assert (made.launches, made.removals, made.spare) == ((), (), {"a"}), state

    made = plan(see(chosen, [dear, worker("b", SMALL, offer=CHEAP)], offers=OFFERS))
    assert (gone(made), made.launches) == (["a"], ())


def test_no_machine_is_launched_that_saves_nothing() -> None:
    chosen = settings(BIG, SMALL)
    too_much = worker("a", BIG, (ONE, 3), offer=DEAR)
    assert plan(see(chosen, [too_much], offers=OFFERS)).launches == (), "it does not fit on the cheaper one"
    no_price = worker("a", BIG, (ONE, 1))
    assert plan(see(chosen, [no_price])).launches == ()
    cheap = worker("a", SMALL, (ONE, 1), offer=CHEAP)
    assert plan(see(chosen, [cheap], offers=OFFERS)).launches == ()
    dear = worker("a", BIG, (ONE, 1), offer=DEAR)
    full = settings(BIG, SMALL, budgets=Budgets(max_hourly_price=5.5))
    assert plan(see(full, [dear], offers=OFFERS)).launches == (), "both together cost more than is allowed"
    soon = see(chosen, [dear], offers=OFFERS, spare={})
    assert plan(soon).launches == ()


# ---------------------------------------------------------------- loads


def test_loads_are_read_from_the_picture() -> None:
    def held(count: int, strategy: SchedulingStrategy | None = None) -> Demand:
        return Demand(ResourceRequest({"CPU": 10_000}, strategy or SchedulingStrategy()), count)

    bound = SchedulingStrategy("NODE_AFFINITY", b"a")
    soft = SchedulingStrategy("NODE_AFFINITY", b"b", soft=True)
    holdings = [
        Holding(b"a", [held(2), held(1, bound)], ""),
        Holding(b"b", [held(1, soft)], "objects"),
        Holding(b"c", [held(1, soft)], ""),
    ]
    loads = loads_of(ClusterState(1, NOW, [], [], [], [], holdings=holdings))
    assert loads[b"a"] == Load(((ONE, 3),), "a task that names it")
    assert loads[b"b"] == Load(((ONE, 1),), "objects")
    assert loads[b"c"] == Load(((ONE, 1),))
