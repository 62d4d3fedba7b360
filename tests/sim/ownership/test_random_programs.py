"""Random programs on random networks: the ownership cores of several processes, message by message.

`OWNERSHIP_SEEDS=1000-3000` runs other seeds, or many; a failure names its seed.
"""

from __future__ import annotations

import os

import pytest

from tests.sim.events import Events, Violation
from tests.sim.ownership.cluster import Cluster
from tests.sim.ownership.invariants import Invariants
from tests.sim.ownership.process import Process, Waits
from tests.sim.ownership.program import NEVER, Program

SEEDS = os.environ.get("OWNERSHIP_SEEDS", "0-60")
FIRST, LAST = (int(part) for part in SEEDS.split("-"))
CHUNK = 20
STEPS = 25
EVICTIONS = 3
chunks = pytest.mark.parametrize(
    "seeds", [range(start, min(start + CHUNK, LAST)) for start in range(FIRST, LAST, CHUNK)], ids=str
)


def drive(process: Process) -> Waits:
    """The program of a driver."""
    program = Program(process, NEVER)
    yield from program.run(STEPS)
    for entry in program.drop_all():
        process.released.add(entry)


def simulate(seed: int, kills: int = 0, losses: int = 0) -> Events:
    """One run. `kills`: how many processes or nodes die on the way; `losses`: how often stored results are lost.

    Raises:
        Violation: with the seed and the last events.
    """
    world = Events(seed)
    cluster = Cluster(world, world.rng.choice((1, 2)), world.rng.randint(1, 4))
    cluster.lossy = kills > 0 or losses > 0
    try:
        _run(world, cluster, kills, losses)
    except Exception as error:
        told = f"seed {seed}, {kills} kills, {losses} losses: {error}"
        raise Violation(f"{told}\n{world.story()}\n{told}") from error
    finally:
        for process in cluster.processes:
            process.kill()
    return world


def _run(world: Events, cluster: Cluster, kills: int, losses: int) -> None:
    invariants = Invariants(cluster)
    world.after_event = invariants.after_event
    for number in range(world.rng.randint(1, 2)):
        driver = cluster.start_driver(f"d{number}")
        driver.run(drive(driver))
    for _ in range(kills):
        world.at(world.rng.random() * 0.8, cluster.kill_somebody)
    for _ in range(losses):
        world.at(world.rng.random() * 0.5, cluster.lose_results)
    for _ in range(EVICTIONS):
        world.at(world.rng.random() * 0.5, cluster.evict)
    world.run()
    # Nobody wants anything any more.
    for process in cluster.processes:
        if process.alive:
            process.released.extend(process.state)
            process.state.clear()
            process.round(process.drain)
    world.run()
    invariants.at_rest()


@chunks
def test_nothing_is_freed_early_lost_or_left(seeds: range) -> None:
    for seed in seeds:
        simulate(seed)


@chunks
def test_processes_may_die_at_any_moment(seeds: range) -> None:
    for seed in seeds:
        simulate(seed, kills=1 + seed % 3)


@chunks
def test_results_may_be_lost_at_any_moment(seeds: range) -> None:
    for seed in seeds:
        simulate(seed, losses=1 + seed % 4)


@chunks
def test_processes_may_die_and_results_be_lost(seeds: range) -> None:
    for seed in seeds:
        simulate(seed, kills=1 + seed % 2, losses=1 + seed % 3)


def test_one_seed_is_one_run() -> None:
    first, second = simulate(7, 1, 1), simulate(7, 1, 1)
    assert first.story() == second.story()
    assert first.events == second.events
