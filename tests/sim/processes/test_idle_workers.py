"""No worker is idle for long while tasks wait: a long task never holds up the short ones that were pushed behind it.

Every run is a driver with one function whose calls take random times, over a random network. What a run shows is when
each call was submitted, began and ended; from these follows how long tasks waited while a CPU was free.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import pytest

from runtime._ownership.lease_pool import STUCK_FACTOR
from runtime._process import core_worker
from runtime.object_ref import ObjectRef
from runtime.remote_function import RemoteFunction
from tests.sim.processes import network
from tests.sim.processes.program import here
from tests.sim.processes.runs import simulate
from tests.sim.processes.world import World

SHORT_S = 0.002
LONG_S = 3.0
LINK_S = 0.0003
"""What messages take at most, but for some that take 20 times as long: these are links within a machine."""
MOST_IDLE_S = STUCK_FACTOR * 2 * SHORT_S + 0.3
"""What hides a task must be noticed, the task taken back, and perhaps another worker granted, for which an agent takes
up to 100 ms here."""


@dataclass
class Call:
    """One call, by the clock of the simulated world."""

    submitted_s: float
    began_s: float = 0.0
    ended_s: float = 0.0


def work(seconds: float) -> tuple[float, float]:
    """Takes so long; returns when it began and ended."""
    world = here().world
    fiber = world.fiber
    assert fiber is not None
    began = world.now
    fiber.pause(seconds)
    return began, world.now


class Timeline:
    """What a driver submits, and what became of it."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.cpus = 0
        self._refs: list[ObjectRef] = []
        self._work = RemoteFunction(work, {})

    def submit(self, durations: list[float]) -> None:
        """Calls, all at once."""
        for seconds in durations:
            self.calls.append(Call(here().world.now))
            self._refs.append(self._work.remote(seconds))

    def finish(self) -> None:
        """Waits for all of them."""
        process = here()
        self.cpus = process.cluster._max_workers
        found = core_worker.current().reader.get(self._refs, None)
        for call, (began, ended) in zip(self.calls, found, strict=True):
            call.began_s, call.ended_s = began, ended
        self._refs.clear()

    def longest_idle_s(self) -> float:
        """The longest stretch in which a CPU was free and a call had not begun."""
        changes = sorted(
            [(call.submitted_s, 0, 1) for call in self.calls]
            + [(call.began_s, 1, -1) for call in self.calls]
            + [(call.ended_s, -1, 0) for call in self.calls]
        )
        longest, since, running, waiting = 0.0, None, 0, 0
        for at, runs, waits in changes:
            if since is not None:
                longest = max(longest, at - since)
            running, waiting = running + runs, waiting + waits
            if not waiting or running >= self.cpus:
                since = None
            elif since is None:
                since = at
        return longest


def run(seed: int, script: Callable[[random.Random, Timeline], None]) -> Timeline:
    timeline = Timeline()

    def programs(world: World) -> list[Callable[[], None]]:
        rng = random.Random(world.rng.random())

        def main() -> None:
            script(rng, timeline)
            timeline.finish()

        return [main]

    with mock.patch.object(network, "SPEEDS_S", (LINK_S,)):
        simulate(seed, programs)
    return timeline


def pause(seconds: float) -> None:
    fiber = here().world.fiber
    assert fiber is not None
    fiber.pause(seconds)


def short(rng: random.Random) -> float:
    return rng.uniform(0.2, 2.0) * SHORT_S


@pytest.mark.parametrize("seed", range(20))
def test_one_long_task_among_short_ones(seed: int) -> None:
    def script(rng: random.Random, timeline: Timeline) -> None:
        timeline.submit([short(rng) for _ in range(rng.randrange(0, 20))])  # known as short, or not known yet
        pause(rng.choice((0.0, 0.02, 0.5)))
        durations = [short(rng) for _ in range(rng.randrange(5, 60))]
        durations.insert(rng.randrange(len(durations)), LONG_S)
        timeline.submit(durations)

    assert run(seed, script).longest_idle_s() < MOST_IDLE_S


@pytest.mark.parametrize("seed", range(20))
def test_several_long_tasks_in_several_bursts(seed: int) -> None:
    def script(rng: random.Random, timeline: Timeline) -> None:
        for _ in range(rng.randrange(1, 5)):
            share = rng.choice((0.0, 0.05, 0.3))
            timeline.submit(
                [
                    rng.uniform(0.5, 1.0) * LONG_S if rng.random() < share else short(rng)
                    for _ in range(rng.randrange(1, 25))
                ]
            )
            pause(rng.choice((0.0, 0.005, 0.1, 1.0)))

    assert run(seed, script).longest_idle_s() < MOST_IDLE_S


def test_the_measure_sees_a_hidden_task() -> None:
    timeline = Timeline()
    timeline.cpus = 2
    timeline.calls = [Call(0.0, 0.1, 3.0), Call(0.0, 0.1, 0.2), Call(0.0, 3.0, 3.1)]
    assert timeline.longest_idle_s() == pytest.approx(2.8)


def test_the_measure_takes_no_offence_at_busy_workers() -> None:
    timeline = Timeline()
    timeline.cpus = 1
    timeline.calls = [Call(0.0, 0.1, 3.0), Call(0.0, 3.0, 3.1)]
    assert timeline.longest_idle_s() == pytest.approx(0.1)
