"""Schedules: what the check admits never blocks, at any speed, and what it refuses does."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.dag.compile import DRIVER, INPUT, Call, DeadlockError, Plan, Step, Use, World, check, plan


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Random graphs: every call uses the input or earlier calls; calls that nobody uses are outputs."""
    actors = [f"actor {number}" for number in range(draw(st.integers(1, 4)))]
    calls: list[Call] = []
    for index in range(draw(st.integers(1, 8))):
        used = draw(st.lists(st.integers(INPUT, index - 1), min_size=1, max_size=3))
        args = tuple(Use(producer) for producer in used)
        calls.append(Call(index, draw(st.sampled_from(actors)), "work", args, {}))
    used_by_calls = {use.producer for call in calls for use in call.args}
    outputs = [Use(call.index) for call in calls if call.index not in used_by_calls]
    return plan(calls, outputs, True)


def run(world: World, rng: random.Random) -> None:
    """Executes at random speeds until nothing can go on."""
    speeds = [rng.choice((1, 10, 100)) for _ in world.processes]
    while True:
        ready = [n for n, process in enumerate(world.processes) if world.can_go(process)]
        if not ready:
            return
        world.go(world.processes[rng.choices(ready, [speeds[n] for n in ready])[0]])


@given(plans(), st.integers(1, 4), st.integers(0, 2**32))
def test_what_is_admitted_never_blocks(made: Plan, capacity: int, seed: int) -> None:
    check(made, capacity)
    world = World(made, capacity, 3 * capacity + 5)
    run(world, random.Random(seed))
    assert not world.waits()


@given(plans(), st.integers(1, 3), st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_the_check_agrees_with_every_speed(
    made: Plan, capacity: int, seed: int, shuffle: random.Random
) -> None:
    """Also for schedules in a wrong order, which may block."""
    schedules = {}
    for actor, steps in made.schedules.items():
        mixed = list(steps)
        shuffle.shuffle(mixed)
        schedules[actor] = tuple(mixed)
    made = msgspec.structs.replace(made, schedules=schedules)
    try:
        check(made, capacity)
        blocks = False
    except DeadlockError:
        blocks = True
    world = World(made, capacity, 3 * capacity + 5)
    run(world, random.Random(seed))
    assert bool(world.waits()) == blocks


def test_a_deadlock_is_explained() -> None:
    """Two actors that each wait for the other before they write."""
    first, second = Call(0, "a", "m", (Use(1),), {}), Call(1, "b", "m", (Use(0),), {})
    made = Plan(
        {"a": (Step(first, (1,), True, ()),), "b": (Step(second, (0,), True, ()),)},
        {0: ("b", DRIVER), 1: ("a",)},
        (Use(0),),
        False,
        (),
    )
    with pytest.raises(DeadlockError, match="a waits to take the result of call 1") as caught:
        check(made, 2)
    assert set(caught.value.waits) == {"a", "b", f"{DRIVER} (results)"}


def test_a_value_is_taken_once_and_kept_until_its_last_use() -> None:
    calls = [
        Call(0, "a", "m", (Use(INPUT),), {}),
        Call(1, "b", "m", (Use(0),), {}),
        Call(2, "b", "m", (Use(0), [Use(1)]), {}),
    ]
    made = plan(calls, [Use(2)], False)
    one, two = made.schedules["b"]
    assert (one.takes, one.puts, one.drops) == ((0,), False, ())
    assert (two.takes, two.puts, set(two.drops)) == ((), True, {0, 1, 2})
    assert made.readers == {INPUT: ("a",), 0: ("b",), 2: (DRIVER,)}
