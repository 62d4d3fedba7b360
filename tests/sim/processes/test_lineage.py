"""Random graphs of tasks whose results are lost again and again: every one that somebody asks for is made again, from
as far back as needed, with the value that it had; and in the end nothing is left.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from runtime._process import core_worker
from runtime.actor import ActorClass
from runtime.object_ref import ObjectRef
from runtime.remote_function import RemoteFunction
from tests.sim.processes.process import INLINE_BYTES
from tests.sim.processes.program import here
from tests.sim.processes.runs import Main, simulate

SEEDS = os.environ.get("PROCESS_SEEDS", "0-10")
FIRST, LAST = (int(part) for part in SEEDS.split("-"))
STEPS = 40
PAD = b"." * (2 * INLINE_BYTES)


def get(ref: ObjectRef) -> Any:
    return core_worker.current().reader.get([ref], None)[0]


def number_of(number: int, parents: list[int]) -> int:
    return (number + sum(parents) * 31) % 1_000_003


def grow(number: int, nested: list[ObjectRef], *parents: dict[str, Any]) -> dict[str, Any]:
    """Its number, from those of its parents, given as values and as references."""
    known = [parent["number"] for parent in parents] + [get(ref)["number"] for ref in nested]
    # Mostly stored; but a task may give another size of result when it runs again.
    return {"number": number_of(number, known), "pad": PAD if here().rng.random() < 0.8 else b""}


def grow_two(number: int, nested: list[ObjectRef], *parents: dict[str, Any]) -> list[dict[str, Any]]:
    return [grow(number, nested, *parents), grow(number + 1, nested, *parents)]


def grow_inside(number: int, nested: list[ObjectRef], *parents: dict[str, Any]) -> dict[str, Any]:
    """The same, by a task of its own: what it submits is owned here, and kept inside the result."""
    inner = GROW.remote(number, nested)
    known = [parent["number"] for parent in parents]
    return {"number": number_of(get(inner)["number"], known), "pad": PAD, "inner": inner}


def grow_many(number: int, nested: list[ObjectRef], *parents: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for index in range(3):
        yield grow(number + index, nested, *parents)


class Grower:
    """An actor whose calls may run again."""

    def grow(self, number: int) -> dict[str, Any]:
        return {"number": number_of(number, []), "pad": PAD}


GROW = RemoteFunction(grow, {"max_retries": -1})
GROW_TWO = RemoteFunction(grow_two, {"max_retries": -1, "num_returns": 2})
GROW_MANY = RemoteFunction(grow_many, {"max_retries": -1})
GROW_INSIDE = RemoteFunction(grow_inside, {"max_retries": -1})
GROWER = ActorClass(Grower, {"max_task_retries": -1, "max_restarts": -1})


class Graph:
    """What the driver of a run does."""

    def __init__(self, seed: float) -> None:
        self.rng = random.Random(seed)
        self.known: list[tuple[ObjectRef, int]] = []
        self.grower = GROWER.remote()

    def run(self) -> None:
        choices = [self.task, self.task, self.two, self.many, self.inside, self.call, self.lose, self.evict]
        choices += [self.drop, self.drop, self.check, self.bring, self.pause]
        for _ in range(STEPS):
            self.rng.choice(choices)()
        self.lose()
        while self.known:
            self.check()
            self.known.pop()

    def some(self) -> list[tuple[ObjectRef, int]]:
        return self.rng.sample(self.known, min(len(self.known), self.rng.randrange(3)))

    def grown(self, function: RemoteFunction) -> tuple[Any, int, list[int]]:
        top, nested, number = self.some(), self.some(), self.rng.randrange(1000)
        result = function.remote(number, [ref for ref, _ in nested], *[ref for ref, _ in top])
        return result, number, [parent for _, parent in top + nested]

    def task(self) -> None:
        ref, number, parents = self.grown(GROW)
        self.known.append((ref, number_of(number, parents)))

    def two(self) -> None:
        refs, number, parents = self.grown(GROW_TWO)
        self.known += [(ref, number_of(number + index, parents)) for index, ref in enumerate(refs)]

    def many(self) -> None:
        """The values of a generator: some of them, and while it may still run."""
        stream, number, parents = self.grown(GROW_MANY)
        for index in range(self.rng.randint(1, 3)):
            self.known.append((next(stream), number_of(number + index, parents)))

    def inside(self) -> None:
        top, nested, number = self.some(), self.some(), self.rng.randrange(1000)
        ref = GROW_INSIDE.remote(number, [ref for ref, _ in nested], *[ref for ref, _ in top])
        inner = number_of(number, [parent for _, parent in nested])
        self.known.append((ref, number_of(inner, [parent for _, parent in top])))

    def call(self) -> None:
        number = self.rng.randrange(1000)
        self.known.append((self.grower.grow.remote(number), number_of(number, [])))

    def lose(self) -> None:
        here().cluster.lose_results()

    def evict(self) -> None:
        here().cluster.evict()

    def drop(self) -> None:
        if self.known:
            self.known.pop(self.rng.randrange(len(self.known)))

    def check(self) -> None:
        if self.known:
            ref, number = self.rng.choice(self.known)
            found = get(ref)["number"]
            if found != number:
                here().world.fail(f"{ref} holds {found}, not {number}")

    def bring(self) -> None:
        refs = [ref for ref, _ in self.some()]
        if refs:
            found = core_worker.current().waiter.wait(refs, len(refs), None, True)
            assert found == list(range(len(refs)))

    def pause(self) -> None:
        fiber = here().world.fiber
        assert fiber is not None
        fiber.pause(here().world.delay_s(0.1))


@pytest.mark.parametrize("seeds", [range(n, min(n + 20, LAST)) for n in range(FIRST, LAST, 20)], ids=str)
def test_what_is_lost_is_made_again(seeds: range) -> None:
    def graph(seed: float) -> Main:
        return lambda: Graph(seed).run()

    for seed in seeds:
        simulate(seed, lambda world: [graph(world.rng.random())], losses=4)
