"""Compiled graphs of any shape: they give what the plain graph gives, whoever executes them, and survive errors."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.polling import eventually
from tests.under_test import NAME, exceptions, ray

dag: Any = importlib.import_module(f"{NAME}.dag")
pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0)
class Stage:
    def __init__(self, factor: int = 1) -> None:
        self.factor = factor
        self.calls = 0

    def pid(self) -> int:
        return os.getpid()

    def combine(self, *values: Any) -> Any:
        self.calls += 1
        return self.factor * 7 + sum(np.sum(value) * (place + 2) for place, value in enumerate(values)) % 1009

    def count(self, value: Any) -> tuple[int, Any]:
        self.calls += 1
        return self.calls, value

    def total(self, values: list[Any]) -> Any:
        return sum(values)

    def fail_on(self, value: int, bad: int) -> int:
        if value == bad:
            raise KeyError(value)
        return value

    @ray.method(num_returns=2)
    def both(self, value: int) -> tuple[int, int]:
        return value, -value

    def lock(self, _value: Any) -> Any:
        return threading.Lock()

    def add(self, array: Any) -> Any:
        return array + 1

    def nap(self, value: Any) -> Any:
        time.sleep(0.02)
        return value

    def sleep(self, value: Any) -> Any:
        time.sleep(600)
        return value

    def threads(self) -> list[str]:
        return [thread.name for thread in threading.enumerate()]

    def descriptors(self) -> int:
        return len(os.listdir("/proc/self/fd"))


@ray.remote(num_cpus=0)
class AsyncStage:
    async def twice(self, value: int) -> int:
        await asyncio.sleep(0)
        return 2 * value


@contextlib.contextmanager
def compiled(bind: Callable[[Any], Any], **options: Any) -> Iterator[Any]:
    with dag.InputNode() as value:
        graph = bind(value).experimental_compile(**options)
    try:
        yield graph
    finally:
        graph.teardown()


def random_graph(rng: random.Random, stages: list[Any], value: Any) -> Any:
    nodes = [value]
    for _ in range(rng.randint(1, 7)):
        args = [rng.choice(nodes[-4:]) for _ in range(rng.randint(1, 3))]
        if all(arg is value for arg in args) and rng.random() < 0.5:
            args.append(rng.randint(0, 9))
        nodes.append(rng.choice(stages).combine.bind(*args))
    return dag.MultiOutputNode(nodes[rng.randint(1, len(nodes) - 1) :])


@pytest.mark.parametrize("seed", range(8))
def test_a_random_graph_gives_what_the_plain_one_gives(seed: int) -> None:
    rng = random.Random(seed)
    stages = [Stage.remote(factor) for factor in range(rng.randint(1, 4))]
    with dag.InputNode() as value:
        node = random_graph(rng, stages, value)
    inputs = [rng.choice((number, np.arange(number + 1), np.ones(20_000))) for number in range(12)]
    plain = [ray.get(node.execute(one)) for one in inputs]
    graph = node.experimental_compile()
    try:
        pending = [graph.execute(one) for one in inputs]  # more than the channels hold
        assert [ray.get(refs) for refs in pending] == plain
    finally:
        graph.teardown()


def test_large_arrays_through_a_chain() -> None:
    stages = [Stage.remote() for _ in range(3)]

    def chain(node: Any) -> Any:
        for stage in stages:
            node = stage.add.bind(node)
        return node

    with compiled(chain, _buffer_size_bytes=100) as graph:
        refs = [graph.execute(np.full(200_000, number)) for number in range(15)]
        kept = [ray.get(ref) for ref in refs]  # the memory of all stays valid
        assert [array[-1] for array in kept] == [number + 3 for number in range(15)]


def test_the_order_of_binding_is_the_order_of_calls() -> None:
    stage = Stage.remote()
    with dag.InputNode() as value:
        first, second = stage.count.bind(value), stage.count.bind(value)
        node = dag.MultiOutputNode([second, first])
    assert ray.get(node.execute(5)) == [(2, 5), (1, 5)]
    graph = node.experimental_compile()
    assert ray.get(graph.execute(6)) == [(4, 6), (3, 6)]
    graph.teardown()


def test_nodes_in_containers_and_several_returns() -> None:
    one, two = Stage.remote(), Stage.remote()

    def bind(value: Any) -> Any:
        left, right = one.both.bind(value[1])
        return dag.MultiOutputNode([two.total.bind([left, value[0], 100]), right, one.count.bind(value)])

    with compiled(bind) as graph:
        total, right, counted = ray.get(graph.execute(3, 4))
        assert (total, right) == (107, -4)
        assert counted[0] == 1
        assert [counted[1][0], counted[1][1]] == [3, 4]


def test_an_error_reaches_its_result_only() -> None:
    one, two = Stage.remote(), Stage.remote()
    with compiled(lambda value: two.nap.bind(one.fail_on.bind(value, 2))) as graph:
        refs = [graph.execute(number) for number in range(4)]
        assert ray.get(refs[0]) == 0
        with pytest.raises(KeyError) as caught:
            ray.get(refs[2])
        assert isinstance(caught.value, exceptions.RayTaskError)
        assert "Stage.fail_on" in str(caught.value)
        assert [ray.get(refs[1]), ray.get(refs[3])] == [1, 3]


def test_results_that_cannot_be_pickled() -> None:
    stage = Stage.remote()
    with compiled(stage.lock.bind) as graph:
        for _ in range(2):
            with pytest.raises(TypeError, match="pickle"):
                ray.get(graph.execute(1))
    with compiled(stage.add.bind) as graph, pytest.raises(TypeError, match="a value for a channel"):
        graph.execute(threading.Lock())


def test_more_executions_than_channels_hold_wait() -> None:
    stage = Stage.remote()
    with compiled(stage.add.bind) as graph:
        refs = [graph.execute(number) for number in range(50)]
        assert ray.get(refs[40]) == 41
        assert [ray.get(ref) for number, ref in enumerate(refs) if number != 40] == [
            number + 1 for number in range(50) if number != 40
        ]


def test_results_that_nobody_asks_for() -> None:
    stage = Stage.remote()
    with compiled(stage.add.bind, _max_inflight_executions=2) as graph:
        for number in range(20):
            graph.execute(number)
        assert ray.get(graph.execute(20)) == 21


def test_results_that_wait_are_bounded() -> None:
    stage = Stage.remote()
    with compiled(stage.add.bind, _max_buffered_results=2) as graph:
        refs = [graph.execute(number) for number in range(5)]
        with pytest.raises(exceptions.RayCgraphCapacityExceeded, match="_max_buffered_results"):
            ray.get(refs[4])
        assert [ray.get(ref) for ref in refs] == [1, 2, 3, 4, 5]


def test_async_actors_and_await() -> None:
    one, two = AsyncStage.remote(), Stage.remote()

    async def main(graph: Any) -> list[int]:
        async def one_of(number: int) -> int:
            future = await graph.execute_async(number)
            result: int = await future
            return result

        return list(await asyncio.gather(*map(one_of, range(30))))

    with compiled(lambda value: two.add.bind(one.twice.bind(value)), enable_asyncio=True) as graph:
        for _ in range(2):  # in another event loop as well
            assert asyncio.run(main(graph)) == [2 * number + 1 for number in range(30)]


def test_actors_stay_usable() -> None:
    stage, other = Stage.remote(), Stage.remote()
    before = ray.get([stage.descriptors.remote(), other.descriptors.remote()])
    for _ in range(3):
        with compiled(lambda value: other.nap.bind(stage.nap.bind(value))) as graph:
            refs = [graph.execute(number) for number in range(5)]
            assert ray.get(stage.combine.remote(1)) == 9
            assert ray.get(refs[0]) == 0
    for actor, count in zip((stage, other), before, strict=True):
        assert eventually(lambda actor=actor: not _graph_threads(actor))
        assert eventually(lambda actor=actor, count=count: ray.get(actor.descriptors.remote()) <= count + 2)


def _graph_threads(actor: Any) -> list[str]:
    return [n for n in ray.get(actor.threads.remote()) if "graph" in n or "channel" in n]


def test_two_graphs_of_one_actor() -> None:
    stage = Stage.remote()
    with compiled(stage.nap.bind) as one, compiled(stage.add.bind) as two:
        refs = [graph.execute(number) for number in range(3) for graph in (one, two)]
        assert [ray.get(ref) for ref in refs] == [0, 1, 1, 2, 2, 3]


@ray.remote(num_cpus=0)
def execute_there(graph: Any, value: int) -> int:
    result: int = ray.get(graph.execute(value))
    graph.teardown()
    return result


def test_any_process_that_has_it_executes_it() -> None:
    stage = Stage.remote()
    with compiled(stage.add.bind) as graph:
        pending = [execute_there.remote(graph, number) for number in range(2)]
        assert ray.get(graph.execute(10)) == 11
        assert ray.get(pending) == [1, 2]
        assert ray.get(graph.execute(11)) == 12


def _chain_of(stages: list[Any], method: str = "nap") -> Callable[[Any], Any]:
    def bind(node: Any) -> Any:
        for stage in stages:
            node = getattr(stage, method).bind(node)
        return node

    return bind


@pytest.mark.parametrize("busy", [True, False])
def test_a_killed_actor_is_named(busy: bool) -> None:
    stages = [Stage.remote() for _ in range(3)]
    pid = ray.get(stages[1].pid.remote())
    with dag.InputNode() as value:
        middle = stages[1].sleep if busy else stages[1].nap
        graph = stages[2].nap.bind(middle.bind(stages[0].nap.bind(value))).experimental_compile()
    if busy:
        threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
    else:
        assert ray.get(graph.execute(1)) == 1
        os.kill(pid, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(exceptions.ActorDiedError) as caught:
            ray.get(graph.execute(1), timeout=60)
        assert stages[1]._actor_id.hex() in str(caught.value)
    graph.teardown()
    for survivor in (stages[0], stages[2]):
        assert eventually(lambda survivor=survivor: not _graph_threads(survivor))
    assert ray.get(stages[0].pid.remote()) > 0


def test_a_dead_actor_cannot_be_compiled() -> None:
    stages = [Stage.remote() for _ in range(2)]
    ray.get(stages[1].pid.remote())
    ray.kill(stages[1])
    with pytest.raises(exceptions.RayActorError), compiled(_chain_of(stages)):
        pass
    assert eventually(lambda: not _graph_threads(stages[0]))


def test_teardown_lets_go_of_what_waits() -> None:
    stages = [Stage.remote() for _ in range(3)]
    with compiled(_chain_of(stages)) as graph:
        refs = [graph.execute(np.zeros(100_000)) for _ in range(30)]
    with pytest.raises(exceptions.RayChannelError):
        ray.get(refs[-1])
    graph.teardown()
    assert ray.get([stage.pid.remote() for stage in stages])


def test_a_graph_that_is_forgotten() -> None:
    stage = Stage.remote()
    with dag.InputNode() as value:
        graph = stage.nap.bind(value).experimental_compile()
    assert ray.get(graph.execute(1)) == 1
    del graph
    assert eventually(lambda: not _graph_threads(stage))


def test_kill_actors() -> None:
    stage = Stage.remote()
    with dag.InputNode() as value:
        graph = stage.nap.bind(value).experimental_compile()
    graph.teardown(kill_actors=True)
    with pytest.raises(exceptions.RayActorError):
        ray.get(stage.pid.remote())
