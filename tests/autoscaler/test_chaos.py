"""The autoscaler killed at every step it takes, and in a world where everything goes wrong: it ends at rest, leaks
no machine, makes none twice."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, replace

import pytest

from autoscaler.config import AutoscalerConfig, Budgets
from autoscaler.demand import demand_of
from autoscaler.instances import TRANSITIONS, InstanceState
from autoscaler.provider import SPOT, NodeType, Offer
from autoscaler.simulation import Faults
from tests.sim.autoscaler.world import CLUSTER, Crash, SimWorld

S = InstanceState
HEAD = NodeType("head", {"CPU": 1})
SMALL = NodeType("small", {"CPU": 2}, min_workers=1, max_workers=6)


# ---------------------------------------------------------------- killed at every transition

CALM = AutoscalerConfig(
    CLUSTER,
    "sim",
    (HEAD, SMALL),
    "head",
    max_workers=6,
    idle_timeout_s=15.0,
    budgets=Budgets(max_creating=1),
)


def calm_story(world: SimWorld) -> None:
    """Every step of an instance's life that needs no bad luck: work comes, a node dies, a setup fails, a maximum is
    lowered and raised, work ends."""
    world.run(25.0)
    world.setup_failure = 1.0
    world.submit({"CPU": 2}, 6, 40.0)
    world.run(14.0)
    world.setup_failure = 0.0
    world.run(30.0)
    workers = world.workers()
    if workers:
        world.kill_node_on(workers[-1].machine_id)
    world.run(10.0)
    world.configure(replace(CALM, node_types=(HEAD, replace(SMALL, max_workers=2))))
    world.run(20.0)
    world.configure(CALM)
    world.run(40.0)


def must_rest(world: SimWorld, about: str) -> None:
    """All work was done; what is left is the minimum, and nothing is planned any more."""
    demand = demand_of(world.state())
    assert not demand.gangs, about
    for shape, count in demand.shapes:
        told = [n for n in world.reconciler.plan.infeasible if n.demand == str(shape)]
        assert sum(n.count for n in told) == count, f"{about}: {count} x {shape} wait and nobody knows why"
    states = [i.state for i in world.reconciler.table if not i.is_terminal]
    least = sum(kind.min_workers for kind in world.config.node_types)
    assert states == [S.RUNNING] * least, f"{about}: {states}"
    wanted = {i.machine_id for i in world.reconciler.table if i.state is S.RUNNING}
    there = {m.id for m in world.provider.machines()} - {world.head.id, world.foreign.id}
    assert there == wanted, f"{about}: {there} exist, {wanted} are wanted"
    done = world.effects_done
    world.run(120.0)
    assert world.effects_done == done, f"{about}: a quiet world is not left alone"
    assert not world.reconciler.plan.launches, about
    assert not world.reconciler.plan.removals, about


@dataclass
class Kill:
    """Lets the autoscaler die once, at one point."""

    world: SimWorld
    at: tuple[str, tuple[str, ...]]
    with_memory: bool
    back: int
    happened: bool = False

    def __call__(self, point: str) -> None:
        if not self.happened and (point, self.world.moved) == self.at:
            self.happened = True
            self.world.restart_head(self.with_memory, self.back)
            raise Crash


def calm_world(lag_s: float = 0.0) -> SimWorld:
    faults = Faults(boot_s=4.0, stop_s=2.0, lag_s=lag_s)
    return SimWorld(CALM, faults, 3, {"small": (Offer("a", price=1.0),)})


@functools.cache
def points_of_the_story(lag_s: float) -> list[tuple[str, tuple[str, ...]]]:
    """Every point of every kind of tick in which some instance takes a step."""
    found: dict[tuple[str, tuple[str, ...]], None] = {}
    world = calm_world(lag_s)

    def note(point: str) -> None:
        if world.moved:
            found[point, world.moved] = None

    world.at_point = note
    calm_story(world)
    world.run(200.0)
    must_rest(world, "nobody died")
    return list(found)


def test_the_story_takes_the_steps_of_a_life() -> None:
    taken = {move for _, moved in points_of_the_story(0.0) for move in moved}
    assert {
        ">QUEUED",
        "QUEUED>REQUESTED",
        ">REQUESTED",
        "REQUESTED>ALLOCATED",
        "ALLOCATED>SETTING_UP",
        "SETTING_UP>RUNNING",
    } <= taken
    assert {"RUNNING>TERMINATING", "SETTING_UP>TERMINATING", "TERMINATING>TERMINATED"} <= taken
    assert "RUNNING>DRAINING" in taken
    legal = {f"{a.name}>{b.name}" for a, b in TRANSITIONS}
    assert {move for move in taken if not move.startswith(">")} <= legal


@pytest.mark.parametrize(
    ("with_memory", "back", "lag_s"),
    [(True, 1, 0.0), (True, 1, 5.0), (True, 4, 0.0), (False, 0, 0.0)],
    ids=["saved", "saved, and listings lag", "stale", "nothing"],
)
def test_killed_at_every_transition(with_memory: bool, back: int, lag_s: float) -> None:
    for point in points_of_the_story(lag_s):
        about = f"died {point[0]}, in a tick with {', '.join(point[1])}"
        world = calm_world(lag_s)
        kill = Kill(world, point, with_memory, back)
        world.at_point = kill
        calm_story(world)
        assert kill.happened, about
        world.run(200.0)
        if with_memory and back == 1:
            found = [i.id for i in world.reconciler.table if i.adopted]
            assert not found, f"{about}: {found} were launched and not known"
        must_rest(world, about)


# ---------------------------------------------------------------- everything at once

HOSTILE = AutoscalerConfig(
    CLUSTER,
    "sim",
    (
        HEAD,
        SMALL,
        NodeType("big", {"CPU": 8, "disk": 2}, {"tier": "fast"}, max_workers=4),
        NodeType("gpu", {"CPU": 8, "GPU": 2}, max_workers=2, spot=True),
    ),
    "head",
    max_workers=10,
    idle_timeout_s=30.0,
)
OFFERS = {
    "small": (Offer("a", price=1.0), Offer("b", price=1.1)),
    "big": (Offer("a", price=3.0), Offer("b", price=3.2)),
    "gpu": (Offer("a", SPOT, 4.0), Offer("a", price=10.0)),
}


def hostile(rng: random.Random) -> Faults:
    """Every fault that the platform knows, each half of the time."""

    def maybe(most: float) -> float:
        return rng.choice((0.0, rng.uniform(0.0, most)))

    return Faults(
        boot_s=rng.uniform(0.0, 20.0),
        stop_s=rng.uniform(0.0, 5.0),
        lag_s=maybe(10.0),
        partial=maybe(0.3),
        lost_reply=maybe(0.3),
        transient=maybe(0.2),
        twice=maybe(0.2),
        never_boots=maybe(0.2),
        quota=rng.choice((None, 6)),
        calls_per_s=rng.choice((None, 0.5)),
        stock=rng.choice(({}, {("small", "a", "on-demand"): 2}, {("gpu", "a", SPOT): 0})),
    )


def some_work(world: SimWorld, rng: random.Random) -> None:
    if rng.random() < 0.6:
        shape = rng.choice(({"CPU": 1}, {"CPU": 2}, {"CPU": 4, "disk": 1}, {"GPU": 1}, {"CPU": 99}))
        world.submit(shape, rng.randint(1, 10), rng.uniform(1.0, 40.0))
    else:
        strategy = rng.choice(("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"))
        world.submit_group(strategy, [{"CPU": rng.randint(1, 2)}] * rng.randint(1, 4), rng.uniform(5.0, 30.0))


def some_mishap(world: SimWorld, rng: random.Random) -> None:
    workers = world.workers()
    roll = rng.random()
    if roll < 0.4 and workers:
        machine_id = rng.choice(workers).machine_id
        if roll < 0.2:
            world.provider.vanish(machine_id)
        world.after(rng.uniform(0.0, 10.0), lambda: world.kill_node_on(machine_id))
    elif roll < 0.5:
        for worker in workers:
            world.kill_node_on(worker.machine_id)
    elif roll < 0.9:
        dies_at = rng.choice(("before the save", "after the save", "after Create", "after Terminate"))
        with_memory, back = rng.random() < 0.7, rng.choice((1, 1, 3, 8))

        def die(point: str) -> None:
            if point == dies_at:
                world.at_point = lambda _: None
                world.restart_head(with_memory, back)
                raise Crash

        world.at_point = die


@pytest.mark.parametrize("seed", range(8))
def test_whatever_goes_wrong_it_ends_at_rest(seed: int) -> None:
    rng = random.Random(seed)
    world = SimWorld(HOSTILE, hostile(rng), seed, OFFERS)
    world.setup_failure = rng.choice((0.0, 0.2))
    world.hang = rng.choice((0.0, 0.2))
    for _ in range(20):
        some_work(world, rng)
        world.run(rng.uniform(0.5, 20.0))
        if rng.random() < 0.6:
            some_mishap(world, rng)
    # From here on everything works.
    world.provider.faults = Faults(boot_s=world.provider.faults.boot_s, stop_s=2.0)
    world.setup_failure = world.hang = 0.0
    world.at_point = lambda _: None
    world.run(1800.0)
    must_rest(world, f"seed {seed}")
