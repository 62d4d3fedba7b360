"""Random programs on random networks: the real object tables, submitters and executors of several processes.

`OWNERSHIP_SEEDS=1000-3000` runs other seeds, or many; a failure names its seed.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable

import pytest

from tests.sim.ownership.cluster import Cluster
from tests.sim.ownership.invariants import Invariants
from tests.sim.ownership.process import Process, simulated_time
from tests.sim.ownership.program import NEVER, Book, Program
from tests.sim.ownership.world import Violation, World

SEEDS = os.environ.get("OWNERSHIP_SEEDS", "0-150")
FIRST, LAST = (int(part) for part in SEEDS.split("-"))
CHUNK = 25
CHUNKS = [range(start, min(start + CHUNK, LAST)) for start in range(FIRST, LAST, CHUNK)]


def simulate(seed: int, kills: int = 0, steps: int = 25) -> World:
    """One run. `kills`: how many processes or nodes die on the way.

    Raises:
        Violation: with the seed and the last events.
    """
    world = World(seed)
    with simulated_time(world):
        cluster = Cluster(world, nodes=world.rng.choice((1, 2)), max_workers=world.rng.randint(1, 4))
        cluster.book = Book()
        cluster.lossy = kills > 0
        try:
            _run(world, cluster, kills, steps)
        except Exception as error:
            raise Violation(
                f"seed {seed}, {kills} kills: {error}\n{world.story()}\nseed {seed}: {error}"
            ) from error
        finally:
            world.after_event = lambda: None
            world.failure = None
            for process in cluster.processes:
                process.kill()
            for process in cluster.processes:
                for fiber in process.fibers:
                    while not fiber.done:
                        fiber.turn()
    return world


def _run(world: World, cluster: Cluster, kills: int, steps: int) -> None:
    invariants = Invariants(cluster)
    world.after_event = invariants.after_event
    for number in range(world.rng.randint(1, 2)):
        driver = cluster.start_driver(f"d{number}")
        driver.start(_main(driver, random.Random(world.rng.random()), steps))
    for _ in range(kills):
        world.at(world.rng.random() * 0.3, lambda: _kill_somebody(world, cluster))
    world.run()
    for process in cluster.processes:
        if process.alive and process.is_driver and not process.fibers[0].done:
            world.fail(f"{process.name} waits for ever")
    # Nobody wants anything any more.
    for process in cluster.processes:
        if process.alive:
            with world.inside(process):
                process.state.clear()
            process.pump.round_soon(0.001)
    gc.collect()  # tracebacks refer to their own frames
    world.run()
    invariants.at_rest()


def _main(process: Process, rng: random.Random, steps: int) -> Callable[[], None]:
    def body() -> None:
        program = Program(rng, 0, NEVER)
        program.run(steps)

    return body


def _kill_somebody(world: World, cluster: Cluster) -> None:
    """A worker, the second driver, or all of a node but the first driver, which must see its program through."""
    candidates = [process for process in cluster.processes[1:] if process.alive]
    if world.rng.random() < 0.2 and len(cluster.nodes) > 1:
        cluster.kill_node(cluster.nodes[1])
    elif candidates:
        cluster.kill(world.rng.choice(candidates))


@pytest.mark.parametrize("seeds", CHUNKS, ids=str)
def test_nothing_is_freed_early_and_nothing_leaks(seeds: range) -> None:
    for seed in seeds:
        simulate(seed)


@pytest.mark.parametrize("seeds", CHUNKS, ids=str)
def test_processes_may_die_at_any_moment(seeds: range) -> None:
    for seed in seeds:
        simulate(seed, kills=1 + seed % 3)


def test_one_seed_is_one_run() -> None:
    first, second = simulate(7), simulate(7)
    assert first.story() == second.story()
    assert first.events == second.events
