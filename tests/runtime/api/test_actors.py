"""Actors: state, order, handles, lifetimes, concurrency by threads."""

from __future__ import annotations

import gc
import os
import threading
from typing import Any

import numpy as np
import pytest

from tests.gate import Gate
from tests.polling import eventually
from tests.processes import is_alive
from tests.under_test import exceptions, ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0)
class Counter:
    """Counts."""

    step = 1

    def __init__(self, start: int = 0, *, step: int | None = None) -> None:
        self.value = start
        if step is not None:
            self.step = step

    def add(self, times: int = 1) -> int:
        self.value += self.step * times
        return self.value

    def get(self) -> int:
        return self.value

    def pid(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        raise KeyError("from the actor")

    def me(self) -> Any:
        return ray.get_runtime_context().current_actor

    @staticmethod
    def static(value: int) -> int:
        return value * 2

    @classmethod
    def of_class(cls) -> int:
        return cls.step

    @ray.method(num_returns=2)
    def two(self) -> tuple[int, int]:
        return self.value, self.step

    def echo(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs


def test_state_is_kept_between_calls() -> None:
    counter = Counter.remote(5)
    assert ray.get([counter.add.remote() for _ in range(3)]) == [6, 7, 8]


def test_constructor_arguments() -> None:
    assert ray.get(Counter.remote(start=1, step=10).add.remote(2)) == 21
    assert ray.get(Counter.remote(ray.put(3)).get.remote()) == 3


def test_calls_run_in_the_order_they_were_made() -> None:
    @ray.remote(num_cpus=0)
    class Recorder:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def record(self, value: int) -> None:
            self.seen.append(value)

        def all(self) -> list[int]:
            return self.seen

    recorder = Recorder.remote()
    for i in range(300):
        recorder.record.remote(i)
    assert ray.get(recorder.all.remote()) == list(range(300))


def test_order_holds_when_an_early_argument_comes_late() -> None:
    @ray.remote
    def slow_value(gate: Any) -> int:
        ray.get(gate.pass_through.remote())
        return 1

    from tests.gate import Gate

    gate = Gate.remote()
    counter = Counter.remote()
    first = counter.echo.remote(slow_value.remote(gate))
    second = counter.add.remote()
    ready, _ = ray.wait([second], timeout=0.2)
    assert ready == []
    ray.get(gate.open.remote())
    assert ray.get(first, timeout=60) == ((1,), {})
    assert ray.get(second, timeout=60) == 1


def test_references_as_arguments() -> None:
    counter = Counter.remote()
    assert ray.get(counter.add.remote(counter.add.remote(5))) == 10
    args, kwargs = ray.get(counter.echo.remote([ray.put(1)], key=ray.put(2)))
    assert ray.get(args[0][0]) == 1
    assert kwargs == {"key": 2}


def test_large_arguments_and_results() -> None:
    counter = Counter.remote()
    array = np.arange(2**18)
    args, _ = ray.get(counter.echo.remote(array))
    assert np.array_equal(args[0], array)


def test_static_and_class_methods() -> None:
    counter = Counter.remote()
    assert ray.get(counter.static.remote(4)) == 8
    assert ray.get(counter.of_class.remote()) == 1


def test_several_results() -> None:
    counter = Counter.remote(7)
    assert ray.get(list(counter.two.remote())) == [7, 1]
    first, second = counter.echo.options(num_returns=2).remote(1, a=2)
    assert ray.get([first, second]) == [(1,), {"a": 2}]


def test_a_class_that_makes_more_of_itself() -> None:
    @ray.remote(num_cpus=0)
    class Node:
        def __init__(self, depth: int, width: int = 2) -> None:
            self.children = [Node.remote(depth - 1, width=width) for _ in range(width if depth else 0)]

        def count(self) -> int:
            return 1 + sum(ray.get([child.count.remote() for child in self.children]))

    assert ray.get(Node.remote(2).count.remote()) == 7


def test_inheritance() -> None:
    class Base:
        def __init__(self) -> None:
            self.log = ["base"]

        def which(self) -> str:
            return "base"

        def history(self) -> list[str]:
            return self.log

    @ray.remote(num_cpus=0)
    class Child(Base):
        def __init__(self) -> None:
            super().__init__()
            self.log.append("child")

        def which(self) -> str:
            return "child of " + super().which()

    child = Child.remote()
    assert ray.get([child.which.remote(), child.history.remote()]) == ["child of base", ["base", "child"]]


def test_a_class_without_constructor() -> None:
    @ray.remote(num_cpus=0)
    class Empty:
        def hello(self) -> str:
            return "hello"

    assert ray.get(Empty.remote().hello.remote()) == "hello"


def test_plain_classes_can_be_made_remote() -> None:
    class Plain:
        def __init__(self, value: int) -> None:
            self.value = value

        def get(self) -> int:
            return self.value

    assert ray.get(ray.remote(Plain).remote(3).get.remote()) == 3
    assert ray.get(ray.remote(num_cpus=0)(Plain).remote(4).get.remote()) == 4


def test_every_actor_has_its_own_process_and_state() -> None:
    counters = [Counter.remote(i) for i in range(4)]
    assert ray.get([c.add.remote() for c in counters]) == [1, 2, 3, 4]
    assert len(set(ray.get([c.pid.remote() for c in counters]))) == 4


def test_handles_travel_to_tasks() -> None:
    @ray.remote
    def use(counter: Any, times: int) -> None:
        ray.get([counter.add.remote() for _ in range(times)])

    counter = Counter.remote()
    ray.get([use.remote(counter, 10) for _ in range(4)])
    assert ray.get(counter.get.remote()) == 40


def test_a_handle_travels_before_its_actor_can_be_made() -> None:
    @ray.remote
    def start(gate: Any) -> int:
        ray.get(gate.pass_through.remote())
        return 5

    @ray.remote
    def use(counter: Any, gate: Any) -> int:
        ref = counter.add.remote()
        gate.pass_through.remote()
        return ray.get(ref)

    gate, used = Gate.remote(), Gate.remote()
    ref = use.remote(Counter.remote(start.remote(gate)), used)
    assert eventually(lambda: ray.get(used.waiting.remote()) == 1)
    assert ray.wait([ref], timeout=0.2)[0] == []
    ray.get(gate.open.remote())
    assert ray.get(ref, timeout=60) == 6


def test_handles_travel_inside_containers_and_other_actors() -> None:
    @ray.remote(num_cpus=0)
    class Holder:
        def __init__(self, handles: dict[str, Any]) -> None:
            self.handles = handles

        def add(self) -> int:
            return ray.get(self.handles["counter"].add.remote())

    counter = Counter.remote()
    holder = Holder.remote({"counter": counter})
    assert ray.get(holder.add.remote()) == 1
    assert ray.get(counter.get.remote()) == 1


def test_actors_made_by_tasks_and_returned() -> None:
    @ray.remote
    def make() -> Any:
        counter = Counter.remote(10)
        ray.get(counter.add.remote())
        return counter

    counter = ray.get(make.remote())
    assert ray.get(counter.add.remote()) == 12


def test_actors_made_by_actors() -> None:
    @ray.remote(num_cpus=0)
    class Parent:
        def __init__(self) -> None:
            self.child = Counter.remote(1)

        def add(self) -> int:
            return ray.get(self.child.add.remote())

    assert ray.get(Parent.remote().add.remote()) == 2


def test_an_actor_can_hand_out_itself() -> None:
    counter = Counter.remote(3)
    same = ray.get(counter.me.remote())
    assert same == counter
    assert ray.get(same.add.remote()) == 4


def test_an_actor_that_keeps_a_handle_of_itself_is_not_kept_by_it() -> None:
    @ray.remote(num_cpus=0)
    class Keeper:
        def keep(self) -> int:
            self.me = ray.get_runtime_context().current_actor
            return os.getpid()

    keeper = Keeper.remote()
    pid = ray.get(keeper.keep.remote())
    del keeper
    assert eventually(lambda: not is_alive(pid))


def test_an_error_does_not_end_the_actor() -> None:
    counter = Counter.remote()
    with pytest.raises(KeyError):
        ray.get(counter.fail.remote())
    assert ray.get(counter.add.remote()) == 1


def test_an_actor_goes_when_its_last_handle_does() -> None:
    counter = Counter.remote()
    pid = ray.get(counter.pid.remote())
    assert is_alive(pid)
    del counter
    gc.collect()
    assert eventually(lambda: not is_alive(pid))


def test_queued_calls_finish_after_the_handle_is_gone() -> None:
    refs = [Counter.remote().add.remote() for _ in range(3)]
    gc.collect()
    assert ray.get(refs) == [1, 1, 1]


def test_a_handle_held_elsewhere_keeps_the_actor() -> None:
    @ray.remote(num_cpus=0)
    class Keeper:
        def keep(self, handles: list[Any]) -> None:
            self.handles = handles

        def add(self) -> int:
            return ray.get(self.handles[0].add.remote())

    keeper = Keeper.remote()
    counter = Counter.remote()
    ray.get(keeper.keep.remote([counter]))
    del counter
    gc.collect()
    assert ray.get(keeper.add.remote()) == 1


def test_kill_ends_the_process_and_later_calls() -> None:
    counter = Counter.remote()
    pid = ray.get(counter.pid.remote())
    ray.kill(counter)
    assert eventually(lambda: not is_alive(pid))
    with pytest.raises(exceptions.RayActorError):
        ray.get(counter.get.remote())


def test_no_call_made_after_kill_is_answered() -> None:
    for _ in range(10):
        counter = Counter.options(num_cpus=0).remote()
        ray.get(counter.get.remote())
        ray.kill(counter)
        with pytest.raises(exceptions.RayActorError):
            ray.get(counter.get.remote())


def test_exit_actor_ends_it_on_purpose() -> None:
    @ray.remote(num_cpus=0)
    class Leaver:
        def leave(self) -> None:
            ray.actor.exit_actor()

        def hello(self) -> str:
            return "hello"

    leaver = Leaver.remote()
    assert ray.get(leaver.hello.remote()) == "hello"
    with pytest.raises(exceptions.RayActorError):
        ray.get(leaver.leave.remote())
    with pytest.raises(exceptions.RayActorError):
        ray.get(leaver.hello.remote())


def test_ready_and_call_are_there_for_every_actor() -> None:
    counter = Counter.remote(5)
    ray.get(counter.__ray_ready__.remote())
    assert ray.get(counter.__ray_call__.remote(lambda self, extra: self.value + extra, 2)) == 7


def test_threaded_actors_run_calls_side_by_side() -> None:
    @ray.remote(num_cpus=0, max_concurrency=3)
    class Threaded:
        def __init__(self) -> None:
            self.barrier = threading.Barrier(3)

        def meet(self) -> int:
            return self.barrier.wait(timeout=30)

    threaded = Threaded.remote()
    assert sorted(ray.get([threaded.meet.remote() for _ in range(3)])) == [0, 1, 2]


def test_a_plain_actor_runs_one_call_at_a_time() -> None:
    @ray.remote(num_cpus=0)
    class Plain:
        def __init__(self) -> None:
            self.inside = 0

        def work(self) -> int:
            self.inside += 1
            seen = self.inside
            self.inside -= 1
            return seen

    plain = Plain.remote()
    assert set(ray.get([plain.work.remote() for _ in range(50)])) == {1}


def test_actor_cpus_are_held_while_it_lives() -> None:
    holder = Counter.options(num_cpus=2).remote()
    ray.get(holder.get.remote())
    assert eventually(lambda: ray.available_resources().get("CPU") == 2)
    ray.kill(holder)
    assert eventually(lambda: ray.available_resources().get("CPU") == 4)


def test_an_actor_waits_until_there_is_room() -> None:
    first = Counter.options(num_cpus=4).remote(1)
    ray.get(first.get.remote())
    second = Counter.options(num_cpus=4).remote(2)
    ref = second.get.remote()
    assert ray.wait([ref], timeout=0.2)[0] == []
    ray.kill(first)
    assert ray.get(ref, timeout=60) == 2
    ray.kill(second)


def test_many_actors() -> None:
    counters = [Counter.remote(i) for i in range(12)]
    assert ray.get([c.get.remote() for c in counters]) == list(range(12))


def test_calls_from_several_threads() -> None:
    counter = Counter.remote()

    def work() -> None:
        ray.get([counter.add.remote() for _ in range(25)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert ray.get(counter.get.remote()) == 100


def test_the_handle_names_class_and_id() -> None:
    counter = Counter.remote()
    assert repr(counter).startswith("Actor(Counter, ")
    assert hash(counter) == hash(ray.get(counter.me.remote()))


# ---------------------------------------------------------------- misuse


def test_an_actor_class_is_not_called_directly() -> None:
    with pytest.raises(TypeError, match=r"Counter\.remote\(\)"):
        Counter()


def test_a_method_is_not_called_directly() -> None:
    with pytest.raises(TypeError, match=r"\.remote\(\)"):
        Counter.remote().add()


def test_an_unknown_method() -> None:
    with pytest.raises(AttributeError, match="no_such_method"):
        Counter.remote().no_such_method  # noqa: B018


def test_wrong_arguments_are_refused_at_the_call() -> None:
    with pytest.raises(TypeError, match="too many positional arguments"):
        Counter.remote(1, 2, 3)
    with pytest.raises(TypeError, match="too many positional arguments"):
        Counter.remote().get.remote(1)


def test_kill_wants_an_actor() -> None:
    with pytest.raises(ValueError, match="cancel"):
        ray.kill(ray.put(1))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_restarts": -2}, ValueError),
        ({"max_restarts": "x"}, TypeError),
        ({"lifetime": "forever"}, ValueError),
        ({"name": 3}, TypeError),
        ({"name": ""}, ValueError),
        ({"num_returns": 2}, ValueError),
        ({"get_if_exists": True}, ValueError),
    ],
    ids=str,
)
def test_bad_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Counter.options(**options).remote()
