"""Graphs of tasks and actor calls."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tests.under_test import NAME, ray

dag: Any = importlib.import_module(f"{NAME}.dag")
pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0.1)
def add(left: int, right: int = 1) -> int:
    return left + right


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.count = start

    def add(self, amount: int = 1) -> int:
        self.count += amount
        return self.count

    def get(self) -> int:
        return self.count

    def echo(self, value: Any) -> Any:
        return value

    def fail(self, value: Any) -> None:
        raise ZeroDivisionError(value)

    @ray.method(num_returns=2)
    def both(self, value: int) -> tuple[int, int]:
        return value, -value


def test_tasks() -> None:
    node = add.bind(add.bind(1, 2), right=add.bind(3, 4))
    assert isinstance(node, dag.FunctionNode)
    assert isinstance(node, dag.DAGNode)
    assert ray.get(node.execute()) == 10
    assert ray.get(node.execute()) == 10
    assert ray.get(add.options(num_cpus=0.2).bind(5).execute()) == 6
    assert ray.get(add.options(name="x").bind(1).execute()) == 2


def test_a_node_that_is_used_twice_runs_once() -> None:
    counter = Counter.remote()
    once = counter.add.bind()
    assert ray.get(add.bind(once, once).execute()) == 2
    assert ray.get(counter.get.remote()) == 1


def test_nodes_inside_containers() -> None:
    @ray.remote
    def total(refs: Any, by_name: Any) -> int:
        return sum(ray.get(refs)) + sum(ray.get(list(by_name.values())))

    assert ray.get(total.bind([add.bind(1), add.bind(2)], {"x": add.bind(3)}).execute()) == 9


def test_the_input() -> None:
    with dag.InputNode() as value:
        node = add.bind(add.bind(value, 2), value)
    assert ray.get(node.execute(1)) == 4
    assert ray.get(node.execute(10)) == 22
    with pytest.raises(ValueError, match="should not take any args"):
        dag.InputNode(1)
    with pytest.raises(AssertionError, match="context manager"):
        add.bind(dag.InputNode()).execute(1)


def test_several_inputs() -> None:
    with dag.InputNode() as value:
        node = add.bind(value[0], value.other)
    assert ray.get(node.execute(1, other=5)) == 6

    class Point:
        x = 1
        y = 2

    with dag.InputNode() as value:
        node = add.bind(value.x, value.y)
    assert ray.get(node.execute(Point())) == 3
    with dag.InputNode() as value:
        node = add.bind(value[0], value[1])
    assert ray.get(node.execute([3, 4])) == 7


def test_several_outputs() -> None:
    with dag.InputNode() as value:
        node = dag.MultiOutputNode([add.bind(value), add.bind(value, value)])
    assert ray.get(node.execute(3)) == [4, 6]
    with pytest.raises(ValueError, match="Invalid input type"):
        dag.MultiOutputNode(1)


def test_actors_of_the_graph() -> None:
    actor = Counter.bind(10)
    actor.add.bind(5)
    node = add.bind(actor.get.bind(), actor.add.bind(1))
    assert ray.get(node.execute()) == 31
    assert ray.get(node.execute()) == 31  # a new actor
    handle = actor.execute()
    assert ray.get(handle.get.remote()) == 10
    with dag.InputNode() as value, pytest.raises(ValueError, match="cannot be used in ClassNode constructor"):
        Counter.bind(value)
    with dag.InputNode() as value:
        later = Counter.options(num_cpus=0.1).bind(add.bind(1)).add.bind(value)
    assert ray.get(later.execute(4)) == 6


def test_live_actors() -> None:
    counter = Counter.remote(1)
    with dag.InputNode() as value:
        node = counter.add.bind(value)
    assert ray.get(node.execute(2)) == 3
    assert ray.get(node.execute(2)) == 5
    first, second = counter.both.bind(7)
    assert ray.get(add.bind(first, second).execute()) == 0
    with pytest.raises(ZeroDivisionError):
        ray.get(add.bind(counter.fail.bind(1)).execute())


def test_wrong_arguments_are_refused_when_they_are_bound() -> None:
    with dag.InputNode() as value, pytest.raises(TypeError):
        Counter.remote().echo.bind(value, 1, 2)


def test_what_a_node_refuses() -> None:
    node = add.bind(1)
    with pytest.raises(AttributeError, match="bind\\(\\) cannot be used again"):
        node.bind()
    with pytest.raises(AttributeError, match="remote\\(\\) cannot be used"):
        node.remote()
    actor = Counter.bind()
    with pytest.raises(AttributeError, match="cannot be used"):
        actor.remote()
    with pytest.raises(AttributeError, match="cannot be used on ClassMethodNode"):
        actor.get.remote()


def test_nodes_can_be_inspected() -> None:
    inner = add.bind(1)
    node = add.bind(inner, right=2)
    assert node.get_args() == (inner,)
    assert node.get_kwargs() == {"right": 2}
    seen: list[Any] = []
    node.apply_recursive(lambda one: seen.append(one))
    assert seen[-1] is node
    assert len({one.get_stable_uuid() for one in (inner, node)}) == 2
