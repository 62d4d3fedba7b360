"""Random runs of the real reconciler in a hostile world. A failure names the seed: run it alone with -k."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from autoscaler.config import AutoscalerConfig, Consolidation
from autoscaler.instances import InstanceState
from autoscaler.provider import SPOT, NodeType, Offer
from autoscaler.simulation import Faults
from tests.sim.autoscaler.world import CLUSTER, SimWorld

TYPES = (
    NodeType("head", {"CPU": 1}),
    NodeType("small", {"CPU": 2}, min_workers=1, max_workers=6),
    NodeType("big", {"CPU": 8, "disk": 2}, {"tier": "fast"}, max_workers=4),
    NodeType("gpu", {"CPU": 8, "GPU": 2}, max_workers=2, spot=True),
)
OFFERS = {
    "small": (Offer("a", price=1.0), Offer("b", price=1.1)),
    "big": (Offer("a", price=3.0), Offer("b", price=3.2)),
    "gpu": (Offer("a", SPOT, 4.0), Offer("a", price=10.0)),
}
CONFIG = AutoscalerConfig(
    CLUSTER,
    "sim",
    TYPES,
    "head",
    max_workers=10,
    idle_timeout_s=30.0,
    config_hashes={t.name: "h1" for t in TYPES},
)


def hostile(rng: random.Random) -> Faults:
    return Faults(
        boot_s=rng.uniform(0.0, 20.0),
        stop_s=rng.uniform(0.0, 5.0),
        lag_s=rng.choice((0.0, 0.0, 3.0, 10.0)),
        partial=rng.choice((0.0, 0.2)),
        lost_reply=rng.choice((0.0, 0.2)),
        transient=rng.choice((0.0, 0.1)),
        stock=rng.choice(({}, {("small", "a", "on-demand"): 2}, {("gpu", "a", SPOT): 0})),
    )


def some_work(world: SimWorld, rng: random.Random) -> None:
    roll = rng.random()
    if roll < 0.5:
        shape = rng.choice(({"CPU": 1}, {"CPU": 2}, {"CPU": 4, "disk": 1}, {"GPU": 1}, {"CPU": 1, "GPU": 2}))
        world.submit(shape, rng.randint(1, 12), rng.uniform(1.0, 40.0))
    elif roll < 0.6:
        world.submit({"CPU": 1}, 2, 10.0, {"tier": "fast"})
    elif roll < 0.7:
        world.submit({"CPU": 99}, 1, 1.0)
        world.submit({"unicorn": 1}, 3, 1.0)
    else:
        strategy = rng.choice(("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"))
        world.submit_group(strategy, [{"CPU": rng.randint(1, 2)}] * rng.randint(1, 4), rng.uniform(5.0, 30.0))


def some_mishap(world: SimWorld, rng: random.Random) -> None:
    roll = rng.random()
    workers = world.workers()
    if roll < 0.4 and workers:
        world.kill_node_on(rng.choice(workers).machine_id)
    elif roll < 0.6 and workers:
        machine_id = rng.choice(workers).machine_id
        world.provider.vanish(machine_id)
        world.after(rng.uniform(0.0, 10.0), lambda: world.kill_node_on(machine_id))
    elif roll < 0.75:
        world.restart_head(with_memory=True)
    elif roll < 0.85:
        world.restart_head(with_memory=False)
    elif roll < 0.95:
        most = rng.randint(1, 6)
        kinds = tuple(
            replace(k, max_workers=most) if k.name == "small" else k for k in world.config.node_types
        )
        world.configure(replace(world.config, node_types=kinds))
    else:
        hashes = dict(world.config.config_hashes) | {"small": f"h{rng.randint(2, 9)}"}
        world.configure(replace(world.config, config_hashes=hashes))


@pytest.mark.parametrize("seed", range(15))
def test_a_hostile_world_ends_at_rest(seed: int) -> None:
    rng = random.Random(seed)
    faults = hostile(rng)
    consolidation = Consolidation(after_s=5.0) if seed % 2 else None
    world = SimWorld(replace(CONFIG, consolidation=consolidation), faults, seed, OFFERS)
    world.setup_failure = rng.choice((0.0, 0.0, 0.2))
    for _ in range(25):
        some_work(world, rng)
        world.run(rng.uniform(0.5, 20.0))
        if rng.random() < 0.5:
            some_mishap(world, rng)
    # From here on everything works.
    faults.partial = faults.lost_reply = faults.transient = 0.0
    faults.stock = {}
    world.setup_failure = 0.0
    world.run(1200.0)
    world.submit_group("STRICT_SPREAD", [{"CPU": 1}] * 5, 20.0)
    world.submit_group("STRICT_PACK", [{"CPU": 3}] * 2, 20.0)
    world.submit({"CPU": 1, "GPU": 1}, 3, 20.0)
    world.run(600.0)
    feasible = [
        w
        for w in world.waiting
        if not ({"unicorn"} & set(w.resources)) and w.resources.get("CPU", 0) < 990_000
    ]
    assert not feasible, f"seed {seed}: {len(feasible)} tasks were never run"
    assert not world.groups, f"seed {seed}: {[g.strategy for g in world.groups]} were never placed"
    alive = dict.fromkeys(InstanceState, 0)
    for instance in world.reconciler.table:
        if not instance.is_terminal:
            alive[instance.state] += 1
    assert alive[InstanceState.RUNNING] == 1, f"seed {seed}: {alive}"
    assert sum(alive.values()) == 1, f"seed {seed}: {alive}"
    assert len(world.workers()) == 1, f"seed {seed}"
    assert len(world.provider.machines()) == 3, f"seed {seed}: {world.provider.machines()}"
    done = world.effects_done
    world.run(300.0)
    assert world.effects_done == done, f"seed {seed}: a quiet world is not left alone"
