"""Methods of actors as values: passed to tasks, kept in attributes, pickled."""

from __future__ import annotations

import copy
import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.polling import eventually
from tests.processes import is_alive
from tests.under_test import ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> int:
        self.value += amount
        return self.value

    def pair(self) -> tuple[int, int]:
        return 1, 2

    @ray.method(num_returns=2)
    def two(self) -> tuple[int, int]:
        return 3, 4

    def stream(self) -> Iterator[int]:
        yield 5
        yield 6

    def name(self) -> str:
        return str(ray.get_runtime_context().get_task_name())

    def pid(self) -> int:
        return os.getpid()

    def keep(self, method: Any) -> None:
        self.method = method

    def use(self) -> Any:
        return ray.get(self.method.remote())

    def drop(self) -> None:
        del self.method


@ray.remote
def call(method: Any, *args: Any) -> Any:
    result = method.remote(*args)
    return [ray.get(ref) for ref in result] if not isinstance(result, ray.ObjectRef) else ray.get(result)


def test_a_task_calls_it() -> None:
    counter = Counter.remote()
    assert ray.get(call.remote(counter.add, 5)) == 5
    assert ray.get([call.remote(counter.two), call.remote(counter.stream)]) == [[3, 4], [5, 6]]
    assert ray.get(call.remote(counter.__ray_ready__)) is True


def test_options_travel_with_it() -> None:
    counter = Counter.remote()
    assert ray.get(call.remote(counter.pair.options(num_returns=2))) == [1, 2]
    assert ray.get(call.remote(counter.name.options(name="chosen"))) == "chosen"


def test_as_part_of_other_values() -> None:
    counter = Counter.remote()
    method = counter.add
    assert ray.get(ray.get(ray.put({"method": method}))["method"].remote()) == 1
    assert ray.get(ray.remote(lambda: ray.get(method.remote())).remote()) == 2
    assert ray.get(ray.cloudpickle.loads(ray.cloudpickle.dumps(method)).remote()) == 3
    assert ray.get(copy.deepcopy(method).remote()) == 4


def test_wrong_arguments_are_refused_where_the_call_is_made() -> None:
    with pytest.raises(TypeError, match="too many positional arguments"):
        ray.get(call.remote(Counter.remote().add, 1, 2))


def test_it_keeps_the_actor_alive_as_a_handle_does() -> None:
    holder = Counter.remote()
    pid_of = Counter.remote().pid
    pid = ray.get(pid_of.remote())
    ray.get(holder.keep.remote(pid_of.options(name="kept")))
    del pid_of
    gc.collect()
    assert ray.get(holder.use.remote()) == pid
    ray.get(holder.drop.remote())
    assert eventually(lambda: not is_alive(pid))
