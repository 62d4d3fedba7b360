"""What holds of every plan, in worlds made at random, with the runtime's own scheduler for a judge."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.budgets import Limits
from autoscaler.config import Budgets
from autoscaler.demand import Demand, Gang, Shape
from autoscaler.instances import Instance, InstanceState
from autoscaler.offerings import Offerings, market_of
from autoscaler.plan import DEMAND, Plan, plan
from autoscaler.provider import ON_DEMAND, SPOT, NodeType, Offer, machine_labels
from autoscaler.snapshot import Snapshot, profile_of
from runtime._core.labels import MARKET_TYPE, ZONE
from runtime._core.placement import Fit, NodeView, Request, choose_node, place_bundles
from runtime._core.resources import Resources, subtract, to_units
from runtime._wire.messages.base import NodeInfo
from tests.autoscaler.build import HEAD, NOW, config, instance, node

S = InstanceState
UNPACED = 1e6


@dataclass
class World:
    """A cluster, what is asked of it, and the scheduler that serves it from whatever nodes there are."""

    kinds: tuple[NodeType, ...]
    offers: Mapping[str, Sequence[Offer]]
    max_workers: int = 50
    budget: float | None = None
    speed: float = UNPACED
    shapes: list[tuple[Shape, int]] = field(default_factory=list)
    gangs: list[Gang] = field(default_factory=list)
    explicit: list[tuple[Shape, int]] = field(default_factory=list)
    nodes: list[NodeInfo] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    made: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def snapshot(self) -> Snapshot:
        setup = config(
            *self.kinds,
            max_workers=self.max_workers,
            upscaling_speed=self.speed,
            budgets=Budgets(max_hourly_price=self.budget),
        )
        return Snapshot(
            now=NOW,
            config=setup,
            demand=Demand(tuple(self.shapes), tuple(self.gangs), tuple(self.explicit)),
            nodes=tuple(self.nodes),
            instances=tuple(self.instances),
            markets={kind.name: market_of(kind, self.offers, Offerings(), NOW) for kind in setup.node_types},
            profiles={kind.name: profile_of(kind, ()) for kind in setup.node_types},
        )

    def launch(self, result: Plan, state: InstanceState = S.RUNNING) -> None:
        """The machines of a plan come, and unless they are still on their way their nodes join, idle."""
        kinds = {kind.name: kind for kind in self.kinds}
        for launch in result.launches:
            for _ in range(launch.count):
                self.add(kinds[launch.node_type], launch.offer, state)

    def add(
        self, kind: NodeType, offer: Offer, state: InstanceState = S.RUNNING, free: Resources | None = None
    ) -> None:
        name = f"i{self.made}"
        self.made += 1
        self.instances.append(instance(name, kind, state, offer=offer))
        if state is S.RUNNING:
            labels = machine_labels(kind, offer.zone, offer.market)
            info = node(name, replace(kind, labels=labels))
            self.nodes.append(info if free is None else _with(info, free))

    def join(self) -> None:
        """The machines on their way become nodes."""
        coming = [one for one in self.instances if one.state is not S.RUNNING]
        self.instances = [one for one in self.instances if one.state is S.RUNNING]
        kinds = {kind.name: kind for kind in self.kinds}
        for one in coming:
            self.add(kinds[one.node_type], one.offer)

    def schedule(self) -> int:
        """Places what the scheduler places; returns how many tasks and groups that were."""
        views = [
            NodeView(info.node_id, dict(info.total), dict(info.available), info.labels) for info in self.nodes
        ]
        placed = 0
        for gang in list(self.gangs):
            found = place_bundles(
                [dict(shape.resources) for shape in gang.bundles],
                gang.strategy,
                views,
                rng=self.rng,
                placed=gang.placed,
                selectors=[dict(shape.selector) for shape in gang.bundles],
                domain=gang.domain,
            )
            if found is None:
                continue
            placed += 1
            self.gangs.remove(gang)
            by_id = {view.node_id: view for view in views}
            for index, (shape, node_id) in enumerate(zip(gang.bundles, found, strict=True)):
                if index >= len(gang.placed) or not gang.placed[index]:
                    subtract(by_id[node_id].available, dict(shape.resources))
        waiting = []
        for shape, count in self.shapes:
            request = Request(
                dict(shape.resources),
                labels=dict(shape.selector),
                fallbacks=tuple(dict(selector) for selector in shape.fallbacks),
            )
            while count > 0:
                choice = choose_node(request, views, rng=self.rng)
                if choice.fit is not Fit.AVAILABLE:
                    break
                view = next(view for view in views if view.node_id == choice.node_id)
                subtract(view.available, request.resources)
                count -= 1
                placed += 1
            if count:
                waiting.append((shape, count))
        self.shapes = waiting
        by_id = {view.node_id: view for view in views}
        self.nodes = [_with(info, by_id[info.node_id].available) for info in self.nodes]
        return placed


def _with(info: NodeInfo, available: Resources) -> NodeInfo:
    fields = {name: getattr(info, name) for name in info.__struct_fields__}
    return NodeInfo(**{**fields, "available": dict(available)})


# ---------------------------------------------------------------- worlds made at random


@st.composite
def kinds_of(draw: st.DrawFn) -> tuple[NodeType, ...]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        resources = {"CPU": float(draw(st.integers(1, 16)))}
        for name, most in (("GPU", 4), ("disk", 2)):
            if amount := draw(st.integers(0, most)):
                resources[name] = float(amount)
        most = draw(st.integers(0, 8))
        found.append(
            NodeType(
                f"t{number}",
                resources,
                draw(st.sampled_from([{}, {"tier": "fast"}, {"tier": "slow"}])),
                min_workers=min(most, draw(st.sampled_from([0, 0, 0, 1, 2]))),
                max_workers=most,
                spot=draw(st.booleans()),
            )
        )
    return tuple(found)


OFFER = st.builds(
    Offer,
    st.sampled_from(["a", "b"]),
    st.sampled_from([SPOT, ON_DEMAND]),
    st.sampled_from([0.0, 0.5, 1.0, 3.0]),
)
SELECTOR = st.sampled_from(
    [{}, {}, {}, {"tier": "fast"}, {"tier": "!slow"}, {ZONE: "a"}, {MARKET_TYPE: "spot"}]
)


@st.composite
def shape_of(draw: st.DrawFn, fallbacks: bool = True) -> Shape:
    amounts = {
        "CPU": draw(st.sampled_from([0, 0.5, 1, 2, 3, 5, 9])),
        "GPU": draw(st.sampled_from([0, 0, 0, 1, 2])),
        "disk": draw(st.sampled_from([0, 0, 0, 1])),
    }
    selector = draw(SELECTOR)
    others = [draw(SELECTOR)] if fallbacks and selector and draw(st.booleans()) else []
    return Shape.of(to_units(amounts), selector, [other for other in others if other])


@st.composite
def gang_of(draw: st.DrawFn, number: int, there: Sequence[NodeInfo]) -> Gang:
    some = draw(st.lists(shape_of(False).filter(lambda s: bool(s.resources)), min_size=1, max_size=2))
    bundles = tuple(draw(st.lists(st.sampled_from(some), min_size=1, max_size=5)))
    strategy = draw(st.sampled_from(["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]))
    placed: tuple[bytes, ...] = ()
    if there and len(bundles) > 1 and draw(st.booleans()):
        placed = (draw(st.sampled_from(there)).node_id, *[b""] * (len(bundles) - 1))
    domain = draw(st.sampled_from(["", "", "", "", ZONE]))
    return Gang(f"{number:018d}".encode(), strategy, bundles, placed, domain)


@st.composite
def worlds(draw: st.DrawFn, *, paced: bool = False) -> World:
    kinds = draw(kinds_of())
    offers = {kind.name: draw(st.lists(OFFER, min_size=1, max_size=3)) for kind in kinds}
    world = World(
        kinds,
        offers,
        max_workers=draw(st.integers(0, 14)),
        budget=draw(st.sampled_from([None, None, 2.0, 6.5])),
        speed=draw(st.sampled_from([0.5, 1.0])) if paced else UNPACED,
    )
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(kinds))
        total = to_units(kind.resources)
        state = draw(st.sampled_from([S.RUNNING, S.RUNNING, S.REQUESTED, S.SETTING_UP]))
        free = {name: draw(st.integers(0, amount // 10_000)) * 10_000 for name, amount in total.items()}
        world.add(kind, draw(st.sampled_from(offers[kind.name])), state, free)
    if draw(st.booleans()):
        world.nodes.append(node("head", HEAD, is_head=True, instance_id=""))
    unlike = st.lists(
        st.tuples(shape_of(), st.integers(1, 30)), max_size=5, unique_by=lambda entry: str(entry[0])
    )
    world.shapes = draw(unlike)
    world.explicit = draw(
        st.one_of(st.just([]), unlike.map(lambda found: [e for e in found if e[0].resources]))
    )
    world.gangs = [draw(gang_of(number, world.nodes)) for number in range(draw(st.integers(0, 3)))]
    return world


# ---------------------------------------------------------------- properties


def check_limits(world: World, before: Snapshot) -> None:
    """Nothing is above a limit that was not above it before."""
    setup = before.config
    now, then = (Limits.of(setup, instances) for instances in (world.instances, before.instances))
    for kind in world.kinds:
        assert now.by_type.get(kind.name, 0) <= max(kind.max_workers, then.by_type.get(kind.name, 0))
    assert now.total <= max(setup.max_workers, then.total)
    if world.budget is not None:
        assert now.hourly_price <= max(world.budget, then.hourly_price) + 1e-6


def check_account(world: World, result: Plan) -> None:
    """All that still waits is told, each with a reason, and nothing else is."""
    notes = (*result.waiting, *result.infeasible)
    assert all(note.why and note.count > 0 for note in notes)
    told: Counter[str] = Counter()
    for note in notes:
        told[note.demand] += note.count
    assert {note.group for note in notes if note.group} == {gang.id for gang in world.gangs}
    assert {str(shape): count for shape, count in world.shapes} == {
        str(shape): told[str(shape)] for shape, _ in world.shapes
    }
    for shape, count in world.explicit:
        assert 0 <= told[f"requested {shape}"] <= count


def keep(world: World, result: Plan) -> None:
    """What exceeds a maximum goes before the next plan, as it would."""
    gone = {removal.instance_id for removal in result.removals}
    if gone:
        world.instances = [one for one in world.instances if one.id not in gone]
        world.nodes = [info for info in world.nodes if info.instance_id not in gone]
        left = {info.node_id for info in world.nodes}
        world.gangs = [
            replace(gang, placed=tuple(where if where in left else b"" for where in gang.placed))
            for gang in world.gangs
        ]


@settings(max_examples=250, deadline=None)
@given(st.booleans().flatmap(lambda paced: worlds(paced=paced)))
def test_whatever_is_asked_for_is_placed_by_the_scheduler_or_told(world: World) -> None:
    world.join()
    for _ in range(30):
        world.schedule()
        before = world.snapshot()
        result = plan(before)
        keep(world, result)
        if not result.launches and not result.removals:
            if any(world.schedule() for _ in range(20)):
                continue  # placing a group is in part a matter of luck, and the scheduler tries again
            break
        wanted = sum(launch.count for launch in result.launches if launch.reason == DEMAND)
        world.launch(result)
        check_limits(world, before)
        if wanted and world.speed == UNPACED and not result.removals:
            assert world.schedule() > 0, "machines came, and the scheduler had no use for them"
    else:
        pytest.fail(f"still launching: {result.launches}")
    check_account(world, result)
    counts = Counter(one.node_type for one in world.instances)
    told = {note.demand for note in result.waiting}
    for kind in world.kinds:
        assert counts[kind.name] >= kind.min_workers or f"min_workers of {kind.name!r}" in told


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_machines_on_their_way_are_counted_on(world: World) -> None:
    for _ in range(3):
        before = world.snapshot()
        result = plan(before)
        if not result.launches:
            return
        world.launch(result, S.REQUESTED)
        check_limits(world, before)
    pytest.fail(f"still launching: {result.launches}")


@settings(max_examples=100, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_the_facts_does_not_matter(world: World, rng: random.Random) -> None:
    first = plan(world.snapshot())
    assert plan(world.snapshot()) == first
    for facts in (world.nodes, world.instances, world.shapes, world.gangs, world.explicit):
        rng.shuffle(facts)  # type: ignore[arg-type]
    second = plan(world.snapshot())
    for part in ("launches", "removals", "waiting", "infeasible"):
        assert Counter(map(repr, getattr(first, part))) == Counter(map(repr, getattr(second, part)))


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_a_settled_world_gives_an_empty_plan(world: World) -> None:
    world.shapes, world.gangs, world.explicit, world.nodes, world.instances = [], [], [], [], []
    for _ in range(2):
        result = plan(world.snapshot())
        world.launch(result)
    result = plan(world.snapshot())
    assert not result.launches
    assert not result.removals
    assert not result.infeasible


@settings(max_examples=100, deadline=None)
@given(worlds(), st.integers(0, 12))
def test_a_plan_cut_short_keeps_the_limits_and_tells_what_it_left(world: World, steps: int) -> None:
    asked = iter(range(steps))
    before = world.snapshot()
    result = plan(before, lambda: next(asked, None) is None)
    whole = plan(before)
    assert result.is_partial or result == whole
    world.launch(result, S.REQUESTED)
    check_limits(world, before)
    noted = {note.demand for note in (*result.waiting, *result.infeasible)}
    if result.is_partial and not result.launches:
        for note in (*whole.waiting, *whole.infeasible):
            assert note.demand in noted
