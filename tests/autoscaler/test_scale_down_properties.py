"""Whatever the world looks like: what a plan takes away, nobody misses."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.config import Budgets, Cause, Consolidation
from autoscaler.consolidation import REASON
from autoscaler.demand import Shape
from autoscaler.drain import back_to_work
from autoscaler.instances import ACTIVE, Instance, InstanceState, advance
from autoscaler.loads import Load
from autoscaler.plan import Plan, plan
from autoscaler.provider import Offer
from autoscaler.scale_down import Way, is_outdated
from autoscaler.snapshot import Snapshot
from runtime._core.resources import to_units
from runtime._wire.messages.base import NodeInfo
from tests.autoscaler.build import BIG, GPU, NOW, SMALL, config, instance, node, shape, snapshot

S = InstanceState
KINDS = (SMALL, BIG, GPU, replace(BIG, name="fast", labels={"disk": "fast"}))
SHAPES = (shape(CPU=1), shape(CPU=2), shape(CPU=4), shape(CPU=1, GPU=1), shape({"disk": "fast"}, CPU=1))
OFFERS = {
    "small": [Offer("z", price=1.0)],
    "big": [Offer("z", price=3.0)],
    "gpu": [Offer("z", price=9.0)],
    "fast": [Offer("z", price=4.0)],
}
EXAMPLES = settings(max_examples=150, deadline=None)


@st.composite
def workers(draw: st.DrawFn, index: int) -> tuple[Instance, NodeInfo, Load]:
    """A running or draining worker: idle, busy with tasks, or bound by something that cannot go."""
    name = f"n{index:02d}"
    kind = draw(st.sampled_from(KINDS))
    free = to_units(kind.resources)
    load: dict[Shape, int] = {}
    for _ in range(draw(st.integers(0, 3))):
        one = draw(st.sampled_from(SHAPES))
        if one.accepts(kind.labels) and all(free.get(name, 0) >= amount for name, amount in one.resources):
            load[one] = load.get(one, 0) + 1
            for resource, amount in one.resources:
                free[resource] -= amount
    bound_by = draw(st.sampled_from(["", "", "", "", "an actor", "objects"]))
    is_busy = bool(load or bound_by)
    cause = draw(st.sampled_from([None, None, None, None, *Cause]))
    state = S.RUNNING if cause is None else S.DRAINING
    one_instance = instance(
        name,
        kind,
        state,
        cause=cause or Cause.IDLE,
        settled=draw(st.booleans()),
        offer=OFFERS[kind.name][0],
        config_hash=draw(st.sampled_from(["1-old", "1-new", ""])),
    )
    info = node(
        name,
        kind,
        state="ALIVE" if cause is None else "DRAINING",
        free={resource: amount / 10_000 for resource, amount in free.items()},
        idle_since_s=0.0 if is_busy else NOW - draw(st.sampled_from([1.0, 100.0, 200.0])),
    )
    return one_instance, info, Load(tuple(load.items()), bound_by)


@st.composite
def worlds(draw: st.DrawFn, with_demand: bool = True, may_exceed: bool = True) -> Snapshot:
    count = draw(st.integers(0, 8))
    found = [draw(workers(index)) for index in range(count)]
    if draw(st.booleans()):  # most of the time nothing drains
        found = [one for one in found if one[0].state is S.RUNNING]
    kinds = [
        replace(
            kind,
            min_workers=(least := draw(st.integers(0, 2))),
            max_workers=draw(st.integers(least, 8)) if may_exceed else 20,
        )
        for kind in KINDS
    ]
    limits = {cause: draw(st.integers(0, 2)) for cause in draw(st.sets(st.sampled_from(list(Cause))))}
    chosen = config(
        *kinds,
        budgets=Budgets(
            max_hourly_price=draw(st.sampled_from([None, 10.0, 30.0])) if may_exceed else None,
            max_disrupted=draw(st.integers(0, 4)),
            max_disrupted_by=limits,
        ),
        config_hashes={kind.name: "1-new" for kind in KINDS},
        consolidation=draw(st.sampled_from([None, Consolidation(after_s=10.0, max_used=1.0)])),
        max_workers=draw(st.integers(0, 12)) if may_exceed else 100,
    )
    demand = draw(
        st.lists(st.tuples(st.sampled_from(SHAPES), st.integers(1, 3)), max_size=2, unique_by=lambda d: d[0])
    )
    return snapshot(
        chosen,
        *((one, info) for one, info, _ in found),
        shapes=demand if with_demand else (),
        offers=OFFERS,
        loads={info.node_id: load for _, info, load in found if load.shapes or load.bound_by},
        spare_since_s={one.id: NOW - 100.0 for one, _, _ in found},
    )


def removed(picture: Snapshot, made: Plan) -> list[tuple[Instance, NodeInfo, Way, Cause | None]]:
    instances = {one.id: one for one in picture.instances}
    nodes = {info.instance_id: info for info in picture.nodes}
    return [(instances[r.instance_id], nodes[r.instance_id], r.way, r.cause) for r in made.removals]


@EXAMPLES
@given(worlds())
def test_no_busy_node_is_ended_and_only_those_that_must_or_may_are_drained(picture: Snapshot) -> None:
    for one, info, way, cause in removed(picture, plan(picture)):
        assert way is not Way.CANCEL
        if way is Way.TERMINATE:
            assert one.state is S.DRAINING, "drained first"
            assert one.settled
            assert info.idle_since_s
        elif not info.idle_since_s:
            assert cause in (Cause.SURPLUS, Cause.CONSOLIDATION)
            if cause is Cause.CONSOLIDATION:
                assert not picture.loads[info.node_id].bound_by
                assert picture.config.consolidation is not None


@EXAMPLES
@given(worlds())
def test_minimums_are_kept_but_to_replace(picture: Snapshot) -> None:
    made = plan(picture)
    counts = Counter(one.node_type for one in picture.instances if one.state in ACTIVE)
    counts.update(one.node_type for one in picture.instances if one.id in made.recalls)
    for one, _, way, cause in removed(picture, made):
        if way is not Way.DRAIN or cause is Cause.OUTDATED:
            continue
        if cause is not Cause.SURPLUS:
            kind = picture.config.node_type(one.node_type)
            assert kind is not None
            assert counts[one.node_type] > kind.min_workers
        counts[one.node_type] -= 1


@EXAMPLES
@given(worlds())
def test_never_more_than_the_budgets_at_once(picture: Snapshot) -> None:
    before = Counter(one.cause for one in picture.instances if one.state is S.DRAINING)
    now = Counter(cause for _, _, way, cause in removed(picture, plan(picture)) if way is Way.DRAIN)
    budgets = picture.config.budgets
    for cause, count in now.items():
        assert cause is not None
        assert before[cause] + count <= budgets.max_disrupted_by.get(cause, 1000)
    if now.total() - now[Cause.IDLE]:
        free = (Cause.IDLE, Cause.UNWANTED, Cause.BY_HAND)
        both = before + now
        assert sum(count for cause, count in both.items() if cause not in free) <= budgets.max_disrupted


@EXAMPLES
@given(worlds(may_exceed=False))
def test_the_longest_idle_go_first(picture: Snapshot) -> None:
    made = plan(picture)
    waiting = bool(picture.demand.shapes)
    goes = {r.instance_id for r in made.removals}
    for one, info, _, cause in removed(picture, made):
        if cause is not Cause.IDLE or waiting or picture.config.consolidation is not None:
            continue
        for other in picture.instances:
            rival = next(n for n in picture.nodes if n.instance_id == other.id)
            if (
                other.node_type == one.node_type
                and other.state is S.RUNNING
                and rival.idle_since_s
                and other.id not in goes
            ):
                assert rival.idle_since_s >= info.idle_since_s


@EXAMPLES
@given(worlds(may_exceed=False))
def test_what_waiting_work_will_use_stays(picture: Snapshot) -> None:
    """Taking the plan's removals away and planning again launches nothing more than the plan itself did."""
    made = plan(picture)
    after = applied(picture, made)
    again = plan(after)
    if not made.launches:
        others = ("min_workers", REASON)  # of other nodes: this plan was not about them
        assert not [one for one in again.launches if one.reason not in others], again.launches
    assert not {r.instance_id for r in again.removals if r.way is Way.DRAIN} & set(made.recalls)


def applied(picture: Snapshot, made: Plan) -> Snapshot:
    """The world after a plan: drained nodes are gone, called back ones work, what ran on those that moved
    waits."""
    gone = {r.instance_id for r in made.removals}
    waiting = Counter(dict(picture.demand.shapes))
    for removal in made.removals:
        if removal.cause is Cause.CONSOLIDATION:
            waiting.update(dict(picture.loads[removal.instance_id.encode()].shapes))
    back = {
        one.id: advance(one, back_to_work(one, "called back"), NOW)
        for one in picture.instances
        if one.id in made.recalls
    }
    kept = [back.get(one.id, one) for one in picture.instances if one.id not in gone]
    return replace(
        picture,
        demand=replace(picture.demand, shapes=tuple(waiting.items())),
        instances=tuple(kept),
        nodes=tuple(info for info in picture.nodes if info.instance_id not in gone),
    )


@EXAMPLES
@given(worlds(with_demand=False, may_exceed=False))
def test_nothing_is_launched_for_what_was_moved(picture: Snapshot) -> None:
    """No ping-pong: after a consolidation, the same work finds room on what is left."""
    picture = replace(
        picture,
        config=replace(picture.config, consolidation=Consolidation(after_s=10.0, max_used=1.0)),
        instances=tuple(one for one in picture.instances if one.state is S.RUNNING),
    )
    made = plan(picture)
    moved = [r for r in made.removals if r.cause is Cause.CONSOLIDATION]
    others = {r.instance_id for r in made.removals} - {r.instance_id for r in moved}
    settled = replace(applied(picture, made), config=replace(picture.config, consolidation=None))
    again = plan(settled)
    if moved and not others and not made.launches:
        assert not [one for one in again.launches if one.reason != "min_workers"]
        assert again.waiting == ()


@EXAMPLES
@given(worlds(with_demand=False, may_exceed=False))
def test_consolidation_comes_to_an_end_and_saves(picture: Snapshot) -> None:
    """Round after round, with what moves placed at once: the price falls until nothing moves any more."""
    chosen = replace(
        picture.config,
        consolidation=Consolidation(after_s=10.0, max_used=1.0),
        node_types=tuple(replace(kind, min_workers=0) for kind in picture.config.node_types),
        config_hashes={},
        idle_timeout_s=1e9,
    )
    world = [
        (one, info, picture.loads.get(info.node_id, Load()))
        for one, info in zip(picture.instances, picture.nodes, strict=True)
        if one.state is S.RUNNING
    ]
    price = sum(one.offer.price for one, _, _ in world)
    for _ in range(20):
        seen = replace(
            picture,
            config=chosen,
            instances=tuple(one for one, _, _ in world),
            nodes=tuple(info for _, info, _ in world),
            loads={info.node_id: load for _, info, load in world if load.shapes or load.bound_by},
            spare_since_s={one.id: NOW - 100.0 for one, _, _ in world},
        )
        made = plan(seen)
        moved = [r.instance_id for r in made.removals if r.cause is Cause.CONSOLIDATION]
        if not moved:
            return
        world = placed_elsewhere(world, moved)
        now = sum(one.offer.price for one, _, _ in world)
        assert now < price
        price = now
    raise AssertionError("it goes on and on")


def placed_elsewhere(
    world: list[tuple[Instance, NodeInfo, Load]], moved: list[str]
) -> list[tuple[Instance, NodeInfo, Load]]:
    """The nodes that stay, with the work of the others, big pieces first, on the fullest nodes."""
    stay = [[one, info, dict(load.shapes), load.bound_by] for one, info, load in world if one.id not in moved]
    pieces = [
        piece
        for one, _, load in world
        if one.id in moved
        for piece, count in load.shapes
        for _ in range(count)
    ]
    for piece in sorted(
        pieces, key=lambda piece: (-len(piece.selector), -sum(a for _, a in piece.resources))
    ):
        fitting = [
            entry
            for entry in stay
            if piece.accepts(entry[1].labels)
            and all(entry[1].available.get(name, 0) >= amount for name, amount in piece.resources)
        ]
        assert fitting, f"no room for {piece}"
        best = min(
            fitting,
            key=lambda e: (
                bool(e[1].total.get("GPU")),
                bool(e[1].idle_since_s),
                sum(e[1].available.values()),
            ),
        )
        info = best[1]
        for name, amount in piece.resources:
            info.available[name] -= amount
        best[1] = replace_info(info)
        best[2][piece] = best[2].get(piece, 0) + 1
    return [(one, info, Load(tuple(load.items()), bound)) for one, info, load, bound in stay]


def replace_info(info: NodeInfo) -> NodeInfo:
    kind = next(kind for kind in KINDS if kind.name == info.node_type)
    free = {name: amount / 10_000 for name, amount in info.available.items()}
    return node(info.instance_id, kind, free=free)


@EXAMPLES
@given(worlds(with_demand=False, may_exceed=False))
def test_outdated_idle_nodes_are_replaced_once(picture: Snapshot) -> None:
    """Until nothing changes: no outdated node is idle any more, and as many run as before where a minimum wants
    them."""
    chosen = replace(picture.config, budgets=Budgets(), consolidation=None)
    world = {
        one.id: (one, info)
        for one, info in zip(picture.instances, picture.nodes, strict=True)
        if one.state is S.RUNNING
    }
    made_in_all = 0
    for _ in range(12):
        seen = replace(
            picture,
            config=chosen,
            instances=tuple(one for one, _ in world.values()),
            nodes=tuple(info for _, info in world.values()),
        )
        made = plan(seen)
        if not made.removals and not made.launches:
            break
        for removal in made.removals:
            del world[removal.instance_id]
        for launch in made.launches:
            for _ in range(launch.count):
                made_in_all += 1
                name = f"new{made_in_all}"
                kind = next(kind for kind in KINDS if kind.name == launch.node_type)
                world[name] = (
                    instance(name, kind, config_hash="1-new"),
                    node(name, kind, idle_since_s=NOW - 100.0),
                )
    else:
        raise AssertionError("it flaps")
    assert not [1 for one, info in world.values() if info.idle_since_s and is_outdated(one, seen)]
    assert made_in_all <= 2 * sum(kind.min_workers for kind in chosen.node_types)


@EXAMPLES
@given(worlds())
def test_the_order_of_what_is_seen_does_not_matter(picture: Snapshot) -> None:
    turned = replace(picture, instances=picture.instances[::-1], nodes=picture.nodes[::-1])
    one, other = plan(picture), plan(turned)
    assert {(r.instance_id, r.cause, r.way) for r in one.removals} == {
        (r.instance_id, r.cause, r.way) for r in other.removals
    }
    assert one.recalls == other.recalls
