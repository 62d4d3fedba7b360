"""Controllers on a real cluster: tasks, streams, actors that die, requests."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import runtime as ray
from runtime._controllers.cluster import ClusterEngine
from runtime._controllers.controller import (
    ActorDied,
    ActorUp,
    Begin,
    Call,
    Cancel,
    CreateActor,
    Done,
    Effect,
    Event,
    Failed,
    Forget,
    Item,
    Kill,
    Noticed,
    Perform,
    Reply,
    Requested,
    ResultOf,
    Sleep,
    Stop,
    Store,
    Submit,
    Take,
    Wait,
    Watch,
)
from runtime._controllers.loop import Loop
from runtime._controllers.members import GangSpec, GroupSpec
from runtime._controllers.policies import AllOrNone, Elastic, OneByOne
from runtime.exceptions import ActorDiedError
from tests.polling import eventually
from tests.sim.controllers import example


@pytest.fixture(scope="module", autouse=True)
def session(no_leaks: None) -> Iterator[None]:
    ray.init(num_cpus=4)
    yield
    ray.shutdown()


class Reacting:
    """A controller that answers events by a function."""

    def __init__(self, react: Callable[[Event], Sequence[Effect]]) -> None:
        self._react = react
        self.events: list[Event] = []

    def step(self, event: Event, now: float) -> Sequence[Effect]:
        self.events.append(event)
        return self._react(event)

    def waiting_for(self) -> Sequence[Wait]:
        return ()


def run(react: Callable[[Event], Sequence[Effect]]) -> tuple[Any, list[Event]]:
    controller = Reacting(react)
    return Loop(controller, ClusterEngine()).run(), controller.events


@ray.remote
def add(left: int, right: int) -> int:
    return left + right


@ray.remote
def fail() -> None:
    raise ValueError("on purpose")


@ray.remote
def fail_as(text: str) -> None:
    raise ValueError(text)


@ray.remote
def count(n: int) -> Iterator[bytes]:
    for number in range(n):
        yield bytes([number]) * 10
    if n > 5:
        raise ValueError("too many")


@ray.remote
def sleep() -> None:
    time.sleep(600)


def test_results_travel_by_key() -> None:
    def react(event: Event) -> Sequence[Effect]:
        match event:
            case Begin():
                return [Store("one", 1), Submit("sum", add, [ResultOf("one"), 2])]
            case Done("sum", None):
                return [Submit("more", add, [ResultOf("sum")], {"right": 10}, {"num_cpus": 0.5}, fetch=True)]
            case Done("more", value):
                return [Forget("sum"), Forget("more"), Stop((value, "one"))]
        return []

    assert run(react)[0] == (13, "one")


def test_the_loop_s_own_process_works_in_threads() -> None:
    main = threading.get_ident()

    def react(event: Event) -> Sequence[Effect]:
        match event:
            case Begin():
                return [
                    Perform("thread", threading.get_ident),
                    Perform("wrong", int, ("x",)),
                ]
            case Done("thread", value):
                assert value != main
            case Failed("wrong", error):
                assert isinstance(error, ValueError)
                return [Store("given", 5), Perform("got", ray.get, (ResultOf("given"),))]
            case Done("got", value):
                return [Stop(value)]
        return []

    assert run(react)[0] == 5


def test_a_reference_may_leave_the_loop() -> None:
    ref = run(lambda event: [Store("x", "value"), Stop(ResultOf("x"))])[0]
    assert ray.get(ref) == "value"


def test_errors_are_told_and_so_is_what_cannot_begin() -> None:
    def react(event: Event) -> Sequence[Effect]:
        match event:
            case Begin():
                return [
                    Submit("task", fail),
                    Call("call", "nobody", "work"),
                    Submit("pickle", add, [threading.Lock(), 1]),
                ]
            case Failed(key, error):
                told[key] = error
                return [Stop()] if len(told) == 3 else []
        return []

    told: dict[Any, BaseException] = {}
    run(react)
    assert isinstance(told["task"], ValueError)
    assert isinstance(told["call"], ActorDiedError)
    assert isinstance(told["pickle"], TypeError)


@pytest.mark.parametrize("count", [0, 2])
def test_a_task_has_one_result(count: int) -> None:
    def react(event: Event) -> Sequence[Effect]:
        if isinstance(event, Begin):
            return [Submit("several", add, [1, 2], options={"num_returns": count})]
        assert isinstance(event, Failed)
        return [Stop(event.error)]

    assert isinstance(run(react)[0], TypeError)


@pytest.mark.parametrize("n", [0, 3, 7])
def test_streams_by_credit(n: int) -> None:
    def react(event: Event) -> Sequence[Effect]:
        match event:
            case Begin():
                return [Submit("s", count, [n], options={"num_returns": "streaming"}), Take("s", 2)]
            case Item("s", index):
                return [Forget(("s", index)), Take("s", 1)]
            case Done("s") | Failed("s"):
                return [Stop()]
        return []

    events = run(react)[1]
    assert [event.index for event in events if isinstance(event, Item)] == list(range(n))
    assert isinstance(events[-1], Failed if n > 5 else Done)


def test_cancel() -> None:
    def react(event: Event) -> Sequence[Effect]:
        match event:
            case Begin():
                return [Submit("s", sleep), Sleep("soon", 0.5)]
            case Failed("s", error):
                return [Stop(error)]
        return [Cancel("s")]

    assert isinstance(run(react)[0], ray.exceptions.TaskCancelledError)


@ray.remote
class Worker:
    def work(self, number: int) -> int:
        return number

    def die(self) -> None:
        os._exit(1)


def test_actors_come_up_are_called_and_die() -> None:
    def react(event: Event) -> Sequence[Effect]:
        match event:
            case Begin():
                return [CreateActor("a", Worker), CreateActor("b", Worker)]
            case ActorUp("a"):
                return [Call("work", "a", "work", [7], fetch=True)]
            case Done("work", 7):
                return [Call("end", "a", "die")]
            case ActorDied("a"):
                return [Kill("b")]
            case ActorDied("b"):
                return [Kill("b"), Call("late", "b", "work", [1])]
            case Failed("late"):
                return [Stop()]
        return []

    events = run(react)[1]
    assert [event.key for event in events if isinstance(event, Failed)] == ["end", "late"]
    assert {event.key: event.reason for event in events if isinstance(event, ActorDied)}["b"]


def test_requests_and_watches() -> None:
    def react(event: Event) -> Sequence[Effect]:
        match event:
            case Begin():
                return [Watch("nodes"), Submit("sum", add, [1, 2])]
            case Noticed(news):
                nodes.append(news.node_id)
            case Requested(number, "sum"):
                return [Reply(number, ResultOf("sum"))]
            case Requested(number, _):
                return [Reply(number), Stop()]
        return []

    nodes: list[str] = []
    loop = Loop(Reacting(react), ClusterEngine())
    thread = threading.Thread(target=loop.run)
    thread.start()
    assert ray.get(loop.request("sum").result(60)) == 3
    assert eventually(lambda: nodes)
    loop.request("stop").result(60)
    thread.join(60)
    assert nodes == [ray.get_runtime_context().get_node_id()]


def test_the_example_of_the_documentation() -> None:
    assert example.load().squares(ray, range(20)) == [number * number for number in range(20)]


class Mortal:
    """Dies with some inputs, the first time that it sees them."""

    def work(self, number: int, folder: str) -> int:
        mark = os.path.join(folder, str(number))
        if number % 5 == 0 and not os.path.exists(mark):
            open(mark, "w").close()
            os._exit(1)
        return number


@pytest.mark.parametrize(
    ("policy", "gang"),
    [
        (AllOrNone(3, -1), None),
        (AllOrNone(3, -1), GangSpec({"CPU": 1})),
        (OneByOne(3), None),
        (Elastic(0, 3, 1.0), None),
    ],
    ids=["AllOrNone", "gang", "OneByOne", "Elastic"],
)
def test_every_input_gets_its_result_though_actors_die(policy: Any, gang: Any, tmp_path: Any) -> None:
    class Farm(example.load().Farm):  # type: ignore[misc]
        def step(self, event: Event, now: float) -> Any:
            return [
                Call(e.key, e.actor, e.method, [*e.args, str(tmp_path)], fetch=True)
                if isinstance(e, Call)
                else e
                for e in super().step(event, now)
            ]

    spec = GroupSpec("mortal", ray.remote(num_cpus=1)(Mortal), gang=gang)
    farm = Farm(spec, policy, "work", range(20), tries=20)
    assert Loop(farm, ClusterEngine()).run() == list(range(20))


def test_errors_that_came_too_late_for_a_controller_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    engine = ClusterEngine()
    with caplog.at_level(logging.ERROR, "runtime"):
        engine.carry_out(Submit("stream", count, [6]))
        engine.carry_out(Submit("task", fail))
        stream = engine._streams["stream"].generator._stream
        assert eventually(lambda: len(stream.items) == 7)
        ray.wait([engine._results["task"]])
        engine.close()
        unread = fail_as.remote("the last error")
        ray.wait([unread])
        del unread
        assert eventually(lambda: "the last error" in caplog.text)
    assert "too many" not in caplog.text
    assert "on purpose" not in caplog.text
