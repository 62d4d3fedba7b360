"""Random programs in whole processes. `tests/sim/ownership` drives the ownership core by itself; here what surrounds it
is real as well: readers, streams, executors, the threads that wait.

`PROCESS_SEEDS=1000-3000` runs other seeds, or many; a failure names its seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import pytest

from tests.sim.processes.program import NEVER, Program
from tests.sim.processes.runs import Main, simulate
from tests.sim.processes.world import World

SEEDS = os.environ.get("PROCESS_SEEDS", "0-10")
FIRST, LAST = (int(part) for part in SEEDS.split("-"))
CHUNK = 25
STEPS = 25
chunks = pytest.mark.parametrize(
    "seeds", [range(start, min(start + CHUNK, LAST)) for start in range(FIRST, LAST, CHUNK)], ids=str
)


def random_programs(world: World) -> Sequence[Main]:
    """For one driver or two."""

    def program(seed: float) -> Main:
        return lambda: Program(random.Random(seed), 0, NEVER).run(STEPS)

    return [program(world.rng.random()) for _ in range(world.rng.randint(1, 2))]


@chunks
def test_nothing_is_freed_early_and_nothing_leaks(seeds: range) -> None:
    for seed in seeds:
        simulate(seed, random_programs)


@chunks
def test_processes_may_die_at_any_moment(seeds: range) -> None:
    for seed in seeds:
        simulate(seed, random_programs, kills=1 + seed % 3)


@chunks
def test_results_may_be_lost_at_any_moment(seeds: range) -> None:
    for seed in seeds:
        simulate(seed, random_programs, losses=1 + seed % 4)


@chunks
def test_processes_may_die_and_results_be_lost(seeds: range) -> None:
    for seed in seeds:
        simulate(seed, random_programs, kills=1 + seed % 2, losses=1 + seed % 3)


def test_one_seed_is_one_run() -> None:
    first, second = simulate(7, random_programs), simulate(7, random_programs)
    assert first.story() == second.story()
    assert first.events == second.events
