"""One run of the simulated world: programs in, every invariant checked, the seed and the story out when one breaks."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

from tests.sim.events import Violation
from tests.sim.processes.cluster import Cluster
from tests.sim.processes.invariants import Invariants
from tests.sim.processes.process import simulated_time
from tests.sim.processes.program import Book
from tests.sim.processes.world import World

Main = Callable[[], None]


EVICTIONS = 3


def simulate(
    seed: int, programs: Callable[[World], Sequence[Main]], kills: int = 0, losses: int = 0
) -> World:
    """Runs programs, each in a driver of its own. `kills`: how many processes or nodes die on the way; `losses`: how
    often stored results of tasks are lost.

    Raises:
        Violation: with the seed and the last events.
    """
    world = World(seed)
    with simulated_time(world):
        cluster = Cluster(world, nodes=world.rng.choice((1, 2)), max_workers=world.rng.randint(1, 4))
        cluster.book = Book()
        cluster.lossy = kills > 0 or losses > 0
        try:
            _run(world, cluster, programs(world), kills, losses)
        except Exception as error:
            raise Violation(
                f"seed {seed}, {kills} kills, {losses} losses: {error}\n{world.story()}\nseed {seed}: {error}"
            ) from error
        finally:
            _end(world, cluster)
    return world


def _run(world: World, cluster: Cluster, programs: Sequence[Main], kills: int, losses: int) -> None:
    invariants = Invariants(cluster)
    world.after_event = invariants.after_event
    for number, main in enumerate(programs):
        cluster.start_driver(f"d{number}").start(main)
    for _ in range(kills):
        world.at(world.rng.random() * 0.3, lambda: _kill_somebody(world, cluster))
    for _ in range(losses):
        world.at(world.rng.random() * 0.5, cluster.lose_results)
    for _ in range(EVICTIONS):
        world.at(world.rng.random() * 0.5, cluster.evict)
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


def _end(world: World, cluster: Cluster) -> None:
    """Every fiber unwinds."""
    world.after_event = lambda: None
    world.failure = None
    for process in cluster.processes:
        process.kill()
    for process in cluster.processes:
        for fiber in process.fibers:
            while not fiber.done:
                fiber.turn()


def _kill_somebody(world: World, cluster: Cluster) -> None:
    """A worker, the second driver, or all of a node but the first driver, which must see its program through."""
    candidates = [process for process in cluster.processes[1:] if process.alive]
    if world.rng.random() < 0.2 and len(cluster.nodes) > 1:
        cluster.kill_node(cluster.nodes[1])
    elif candidates:
        cluster.kill(world.rng.choice(candidates))
