"""Handles between processes of a cluster: replicas are actors that run a stand-in."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from runtime.experimental.internal_kv import _internal_kv_put
from runtime.serve._caller import caller
from runtime.serve._core.published import CONTROLLER, NAMESPACE, Demand, Target, Targets, dump, targets_key
from runtime.serve.handle import DeploymentHandle
from tests.runtime.serve.stand_ins import Deployment, StandIn
from tests.under_test import ray

pytestmark = pytest.mark.usefixtures("session")
LIMIT_S = 60.0
BIG = 300_000  # float64 values: 2.4 MB


class Code(Deployment):
    """What the replicas run besides."""

    held: Any = None

    async def describe(self, array: Any, scale: int = 1) -> tuple[float, bool]:
        return float(array.sum()) * scale, array.flags.writeable

    async def zeros(self, count: int) -> Any:
        return np.zeros(count)

    async def arrays(self, count: int) -> Any:
        for number in range(count):
            yield np.full(BIG, number)

    async def put(self, value: Any) -> list[Any]:
        return [await asyncio.to_thread(ray.put, value)]


@ray.remote(num_cpus=0)
class Replica:
    """A stand-in on a loop of its own thread."""

    def start(self, name: str, slots: int) -> Target:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        self._stand_in = StandIn(slots, name)
        self._stand_in.code = Code(self._stand_in)
        asyncio.run_coroutine_threadsafe(self._start(), loop).result()
        target = self._stand_in.target
        node = ray.get_runtime_context().get_node_id()
        return Target(target.replica, target.token, node, target.unix, "", 0, slots)

    async def _start(self) -> None:
        await self._stand_in.start()
        self._stand_in.code.gate = asyncio.Event()

    def kept(self) -> int:
        return self._stand_in.kept

    def begun(self) -> int:
        return len(self._stand_in.begun)

    def most_running(self) -> int:
        return self._stand_in.most_running


class App:
    """A deployment without a controller."""

    def __init__(self) -> None:
        self.name = f"app{uuid.uuid4().hex[:6]}"
        self.handle: DeploymentHandle[Any] = DeploymentHandle("D", self.name)
        self.actors: dict[str, Any] = {}
        self._targets: dict[str, Target] = {}
        self._epoch = 0
        self._options: dict[str, Any] = {}

    def add(self, slots: int = 5) -> Any:
        name = f"{self.name}#D#{uuid.uuid4().hex[:6]}"
        actor = self.actors[name] = Replica.remote()
        self._targets[name] = ray.get(actor.start.remote(name, slots))
        self.publish()
        return actor

    def remove(self, actor: Any) -> None:
        name = next(name for name, known in self.actors.items() if known is actor)
        del self.actors[name], self._targets[name]
        self.publish()

    def publish(self, **options: Any) -> None:
        self._epoch += 1
        self._options.update(options)
        targets = Targets(self._epoch, "running", list(self._targets.values()), **self._options)
        _internal_kv_put(targets_key(self.name, "D"), dump(targets), namespace=NAMESPACE)

    def close(self) -> None:
        for actor in self.actors.values():
            ray.kill(actor)


@pytest.fixture
def app() -> Iterator[App]:
    made = App()
    yield made
    made.close()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


def test_big_arguments_and_results_go_through_the_object_store(app):
    actor = app.add()
    array = np.ones(BIG)
    assert app.handle.describe.remote(array, scale=2).result(timeout_s=LIMIT_S) == (2.0 * BIG, False)
    result = app.handle.zeros.remote(BIG).result(timeout_s=LIMIT_S)
    assert (result.shape, result.flags.writeable) == ((BIG,), False)
    until(lambda: ray.get(actor.kept.remote()) == 0)
    assert result.sum() == 0.0, "the replica has let go of it, and it is still here"
    assert app.handle.remote(array).result(timeout_s=LIMIT_S)[-1] == 1.0
    assert app.handle.remote(array[:100]).result(timeout_s=LIMIT_S).sum() == 100.0


def test_big_results_that_nobody_reads_are_let_go(app):
    actor = app.add()
    responses = [app.handle.zeros.remote(BIG) for _ in range(3)]
    assert app.handle.remote(1).result(timeout_s=LIMIT_S) == 1
    del responses
    gc.collect()
    until(lambda: ray.get(actor.kept.remote()) == 0)


def test_big_items_of_a_stream(app):
    actor = app.add()
    stream = app.handle.options(stream=True).arrays.remote(6)
    assert [item[0] for item in stream] == list(range(6))

    async def program() -> list[float]:
        return [item[0] async for item in app.handle.options(stream=True).arrays.remote(3)]

    assert asyncio.run(program()) == [0, 1, 2]
    until(lambda: ray.get(actor.kept.remote()) == 0)


def test_references_as_arguments_are_replaced_by_their_values(app):
    app.add()
    small, big = ray.put(5), ray.put(np.ones(BIG))
    assert app.handle.remote(small).result(timeout_s=LIMIT_S) == 5
    assert app.handle.remote(value=small).result(timeout_s=LIMIT_S) == 5
    assert app.handle.describe.remote(big).result(timeout_s=LIMIT_S)[0] == BIG
    nested = app.handle.remote([small]).result(timeout_s=LIMIT_S)
    assert ray.get(nested) == [5]


def test_references_in_results_stay_valid(app):
    actor = app.add()
    (ref,) = app.handle.put.remote("kept by its replica").result(timeout_s=LIMIT_S)
    until(lambda: ray.get(actor.kept.remote()) == 0)
    assert ray.get(ref) == "kept by its replica"


def test_a_response_becomes_a_reference_for_tasks(app):
    app.add()

    @ray.remote(num_cpus=0)
    def add_one(value: int) -> int:
        return value + 1

    response = app.handle.remote(1)
    assert ray.get(add_one.remote(response._to_object_ref_sync())) == 2

    async def program() -> int:
        return await add_one.remote(await app.handle.remote(2)._to_object_ref())

    assert asyncio.run(program()) == 3


def test_four_processes_share_one_slot(app):
    actor = app.add(slots=1)

    @ray.remote(num_cpus=0)
    def client(handle: DeploymentHandle[Any], first: int) -> list[int]:
        return [handle.remote(number).result() for number in range(first, first + 50)]

    calls = [client.remote(app.handle, 100 * index) for index in range(4)]
    assert ray.get(calls, timeout=LIMIT_S) == [list(range(100 * i, 100 * i + 50)) for i in range(4)]
    assert ray.get(actor.most_running.remote()) == 1


def test_an_async_actor_calls_by_handle(app):
    app.add()

    @ray.remote(num_cpus=0)
    class Client:
        def __init__(self, handle: DeploymentHandle[Any]) -> None:
            self.handle = handle

        async def twice(self, value: int) -> list[int]:
            return [await self.handle.remote(value), await self.handle.remote(self.handle.remote(value))]

    client = Client.remote(app.handle)
    assert ray.get(client.twice.remote(4), timeout=LIMIT_S) == [4, 4]
    ray.kill(client)


def test_a_process_may_call_on_its_own_event_loop(app):
    app.add()

    @ray.remote(num_cpus=0)
    class Front:
        async def attach(self) -> None:
            caller.attach(asyncio.get_running_loop())

        async def call(self, handle: DeploymentHandle[Any]) -> tuple[int, bool]:
            value = await handle.remote(3)
            return value, caller.here().loop is asyncio.get_running_loop()

    front = Front.remote()
    ray.get(front.attach.remote())
    assert ray.get(front.call.remote(app.handle), timeout=LIMIT_S) == (3, True)
    ray.kill(front)
    assert app.handle.remote(1).result(timeout_s=LIMIT_S) == 1

    async def late() -> None:
        with pytest.raises(RuntimeError, match="comes first"):
            caller.attach(asyncio.get_running_loop())

    asyncio.run(late())


def test_a_replica_that_is_killed_takes_only_what_it_ran(app):
    dying = app.add(slots=2)
    running = [app.handle.wait.remote() for _ in range(2)]
    until(lambda: ray.get(dying.begun.remote()) == 2)
    waiting = [app.handle.remote(number) for number in range(10)]
    ray.kill(dying)
    for response in running:
        with pytest.raises(ray.exceptions.ActorDiedError, match=response.request_id):
            response.result(timeout_s=LIMIT_S)
    app.remove(dying)
    app.add()
    assert [response.result(timeout_s=LIMIT_S) for response in waiting] == list(range(10))


def test_the_controller_is_told_of_demand(app):
    @ray.remote(num_cpus=0)
    class Controller:
        def __init__(self) -> None:
            self.seen: list[Demand] = []

        def record_demand(self, demand: Demand) -> None:
            self.seen.append(demand)

        def all(self) -> list[Demand]:
            return self.seen

    controller = Controller.options(name=CONTROLLER, namespace=NAMESPACE).remote()
    ray.get(controller.all.remote())
    app.publish(scales=True)
    response = app.handle.remote(1)
    until(lambda: any(one.queued == {(app.name, "D"): 1} for one in ray.get(controller.all.remote())))
    app.add()
    assert response.result(timeout_s=LIMIT_S) == 1
    until(lambda: ray.get(controller.all.remote())[-1].queued == {})
    ray.kill(controller)

    # Serve was shut down and started again: there is another controller.
    waiting = [app.handle.pause.remote(2.0) for _ in range(6)]
    successor = Controller.options(name=CONTROLLER, namespace=NAMESPACE).remote()
    until(lambda: any(one.queued for one in ray.get(successor.all.remote())))
    assert [response.result(timeout_s=LIMIT_S) for response in waiting]
    ray.kill(successor)
