"""Executions over random graphs: they end, with every row in its place, and hold no more than they may."""

from __future__ import annotations

import itertools
import random
from concurrent.futures import Future
from typing import Any

import pytest

from runtime._controllers.controller import ResultOf
from runtime._controllers.loop import Loop
from runtime.data._exec.bundles import Bundle, Work
from runtime.data._exec.operators import (
    Barrier,
    ForOneFile,
    Limit,
    Operator,
    Sink,
    Stage,
    TaskSpec,
    Together,
    Union,
)
from runtime.data._exec.requests import Next
from runtime.data._exec.state import Execution, Limits
from tests.sim.controllers.world import Chances
from tests.sim.data.world import DataEngine, Shape
from tests.sim.events import Events

MIB = 1 << 20
Places = list[tuple[int, ...]]


class Graph:
    """Operators at random, and what must come out."""

    def __init__(self, seed: int, engine: DataEngine, with_barriers: bool) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.engine = engine
        self.with_barriers = with_barriers
        self.numbers = itertools.count()
        self.largest = 0
        self.gathered = 0
        """Blocks that operators may put together."""

    def make(self, depth: int) -> tuple[Operator, Places]:
        kind = self.rng.choice(["stage", "stage", "stage", "limit", "together", "union", "barrier"])
        if depth == 0:
            works = [Work((i,)) for i in range(self.rng.randint(1, 12))]
            return self._stage([], [work.order for work in works], works)
        if kind == "union":
            made = [self.make(depth - 1) for _ in range(2)]
            places = [(port, *place) for port, (_, places) in enumerate(made) for place in places]
            return Union("union", [operator for operator, _ in made]), places
        source, places = self.make(depth - 1)
        if kind == "limit":
            rows = self.rng.randint(1, 30)
            return Limit("limit", source, rows), places[:rows]
        if kind == "together":
            rows = self.rng.randint(1, 6)
            self.gathered += rows
            if self.with_barriers and self.rng.random() < 0.5:
                return self._stage([ForOneFile("for one file", source, rows, 0)], places[::rows])
            return self._stage([Together("together", source, rows, 1 << 50)], places[::rows])
        if kind == "barrier" and self.with_barriers:
            return self._stage(
                [Barrier("barrier", [source], _in_pairs)], [(i,) for i in range(-(-len(places) // 2))]
            )
        return self._stage([source], places)

    def _stage(self, inputs: list[Operator], orders: Places, seeds: Any = ()) -> tuple[Operator, Places]:
        name = f"stage {next(self.numbers)}"
        shape = Shape(name, self.seed, self.rng.choice([1, 1, 3]), self.rng.choice([2, 8, 30]) * MIB)
        self.engine.results["program", name] = shape
        self.largest = max(self.largest, shape.size_bytes)
        spec = TaskSpec(
            "function", most=self.rng.choice([None, None, 1, 2]), program=ResultOf(("program", name))
        )
        stage = Stage(name, inputs, spec, shape.size_bytes, seeds=seeds)
        return stage, [(*order, i) for order in orders for i in range(len(shape.of(order)))]


def _in_pairs(inputs: Any) -> list[Work]:
    (bundles,) = inputs
    return [Work((i,), tuple(bundles[2 * i : 2 * i + 2])) for i in range(-(-len(bundles) // 2))]


class Consumer:
    """Takes bundles, with pauses."""

    def __init__(self, world: Events, loop: Loop, slow: float, ahead: int) -> None:
        self.world, self.loop, self.slow = world, loop, slow
        self.taken: list[Bundle] = []
        self.done: list[int] = []
        for _ in range(ahead):
            self.ask()

    def ask(self) -> None:
        done, self.done = tuple(self.done), []
        self.loop.request(Next(done)).add_done_callback(self.got)

    def got(self, future: Future[Any]) -> None:
        if future.exception() is not None or future.result() is None:
            return
        delivered, _ = future.result()
        self.taken.append(delivered.bundle)

        def let_go() -> None:
            self.done.append(delivered.number)
            self.ask()

        self.world.at(self.world.rng.random() * self.slow, let_go)


def run(
    seed: int, with_barriers: bool, failures: float, losses: int = 0, is_ordered: bool = True
) -> tuple[DataEngine, Execution, Consumer, Places, tuple[int, int]]:
    world = Events(seed)
    engine = DataEngine(world, Chances(call_fails=failures))
    depth = world.rng.randint(0, 4)
    graph = Graph(seed, engine, with_barriers)
    _, places = graph.make(depth)

    def make() -> Sink:
        last, _ = Graph(seed, engine, with_barriers).make(depth)
        return Sink(last, is_ordered)

    engine.budget = budget = world.rng.choice([8, 64, 256]) * MIB
    execution = Execution(make, Limits(budget, world.rng.choice([1, 2, 5])))
    for _ in range(losses):
        world.at(world.rng.random() * 3.0, engine.lose_one)
    loop = Loop(execution, engine)
    consumer = Consumer(world, loop, world.rng.choice([0.0, 0.2, 3.0]), world.rng.choice([1, 3]))
    try:
        loop.run()
    except BaseException as error:
        error.add_note(f"seed {seed}, in the state {execution.waiting_for()}\n{world.story()}")
        raise
    return engine, execution, consumer, places, (graph.largest, graph.gathered)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_every_row_comes_in_its_place(first: int) -> None:
    for seed in range(first, first + 50):
        _, execution, consumer, places, _ = run(seed, with_barriers=True, failures=seed % 3 * 0.05)
        assert [bundle.order for bundle in consumer.taken] == places, seed
        assert execution.ledger.reserved_bytes == 0 or any(each.is_cut for each in execution.operators), seed


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_bytes_held_stay_within_the_budget_and_one_block_for_each_running_task(first: int) -> None:
    """A budget that does not hold two blocks of each operator is exceeded by at most one block of each. What belongs
    together has to be there at once."""
    for seed in range(first, first + 50):
        engine, execution, _, _, (largest, gathered) = run(seed, with_barriers=False, failures=0.0)
        stages = len(execution.stages)
        allowed = 0 if engine.budget >= 2 * stages * largest else stages * largest
        allowed += gathered * largest
        assert engine.excess <= allowed, f"seed {seed}: {engine.excess / MIB:.1f} MiB more than allowed"


@pytest.mark.parametrize("is_ordered", [True, False])
def test_blocks_that_are_gone_for_good_are_made_again_and_no_row_comes_twice(is_ordered: bool) -> None:
    again = 0
    for seed in range(150):
        _, execution, consumer, places, _ = run(seed, True, 0.0, losses=2, is_ordered=is_ordered)
        taken = [bundle.order for bundle in consumer.taken]
        assert (taken if is_ordered else sorted(taken)) == sorted(places), seed
        again += execution.runs > 1
    assert again > 20
