"""A day of executions of a compiled graph: every result is right, and memory is flat."""

from __future__ import annotations

import gc

from runtime.dag.compile import INPUT, Call, Use, plan
from runtime.dag.results import CompiledDAGRef
from tests.sim.events import Events
from tests.sim.graphs.world import SimGraph, expected

HOURS = 24
CAPACITY = 10
MADE = plan(
    [
        Call(0, "a", "work", (Use(INPUT),), {}),
        Call(1, "b", "work", (Use(0), Use(INPUT)), {}),
        Call(2, "c", "work", (Use(0),), {}),
        Call(3, "a", "work", (Use(1), Use(2), Use(0)), {}),
    ],
    [Use(3), Use(2)],
    True,
)


def burst(world: SimGraph) -> None:
    """More executions than the channels hold, or fewer. Some results are fetched late, some are dropped."""
    rng, graph = world.events.rng, world.graph
    begun = []
    for _ in range(rng.randint(1, 3 * CAPACITY)):
        value = rng.randint(0, 10**6)
        begun.append((expected(MADE, value), graph.execute(value)))
    if rng.random() < 0.2:
        rng.shuffle(begun)
    while begun:
        values, refs = begun.pop(0)
        for value, ref in zip(values, refs, strict=True):
            assert isinstance(ref, CompiledDAGRef)
            if rng.random() < 0.9:
                assert ref.get(timeout=-1) == value


def test_memory_is_flat() -> None:
    events = Events(18)
    world = SimGraph(events, MADE, CAPACITY)
    sizes, objects = [], []
    for hour in range(1, HOURS + 1):
        end = 1000.0 + 3600 * hour
        while events.now < end:
            burst(world)
            pause_ends = events.now + events.rng.expovariate(1 / 120)
            while events.advance(pause_ends):
                pass
        world.graph.execute(1)[0].get(timeout=-1)  # with it, all before it have come
        while not events.at_rest:
            events.advance(events.now + 1000)
        assert not any(channel.looked_at for channel in world.channels.values())
        sizes.append(world.size_bytes)
        gc.collect()
        objects.append(len(gc.get_objects()))
    assert max(sizes) <= 2 * sizes[0], (
        sizes
    )  # what is held at once varies; what leaks would be 24 times as much
    assert objects[-1] <= objects[0] + 100, objects
