"""Collective operations in graphs, compiled and plain, and groups that a driver makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.under_test import OWN, ray

if not OWN:
    pytest.skip("Ray's need GPUs", allow_module_level=True)

from runtime.dag import InputNode, MultiOutputNode
from runtime.experimental import collective
from runtime.experimental.collective import allgather, allreduce, reducescatter
from runtime.util.collective.types import ReduceOp

WAIT_S = 120


@ray.remote(num_cpus=0)
class Member:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def times(self, array: Any) -> Any:
        return array * self.factor

    def text(self, _array: Any) -> str:
        return "no tensor"

    def sum_of(self, array: Any) -> float:
        return float(array.sum())

    def rank(self, group: str) -> int:
        from runtime.util import collective

        collective.barrier(group)
        return collective.get_rank(group)


@pytest.fixture(scope="module")
def members(session: None) -> Iterator[list[Any]]:
    made = [Member.remote(factor) for factor in (1, 2, 3)]
    yield made
    for one in made:
        ray.kill(one)


def both(outputs: list[Any], array: Any) -> list[Any]:
    """What a graph gives in a plain execution; a compiled one must give the same, twice."""
    graph = MultiOutputNode(outputs)
    plain = ray.get(graph.execute(array), timeout=WAIT_S)
    compiled = graph.experimental_compile()
    try:
        for results in [ray.get(compiled.execute(array), timeout=WAIT_S) for _ in range(2)]:
            assert all(map(np.array_equal, results, plain))
    finally:
        compiled.teardown()
    return plain


ARRAY = np.arange(6.0)


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        (ReduceOp.SUM, ARRAY * 6),
        (ReduceOp.PRODUCT, ARRAY**3 * 6),
        (ReduceOp.MAX, ARRAY * 3),
        (ReduceOp.AVG, ARRAY * 2),
    ],
)
def test_allreduce(members: list[Any], op: ReduceOp, wanted: Any) -> None:
    with InputNode() as x:
        outputs = allreduce.bind([one.times.bind(x) for one in members], op)
    assert all(np.array_equal(one, wanted) for one in both(outputs, ARRAY))


def test_results_go_on_to_calls(members: list[Any]) -> None:
    with InputNode() as x:
        sums = allreduce.bind([one.times.bind(x) for one in members])
        outputs = [one.sum_of.bind(total) for one, total in zip(members, sums, strict=True)]
    assert both(outputs, np.ones(500_000)) == [3_000_000.0] * 3


def test_several_tensors_of_each(members: list[Any]) -> None:
    with InputNode() as x:
        first = [one.times.bind(x) for one in members]
        second = [one.times.bind(node) for one, node in zip(members, first, strict=True)]
        outputs = allreduce.bind([first, second])
        graph = [node for of_actor in outputs for node in of_actor]
    results = both(graph, ARRAY)
    assert all(map(np.array_equal, results, [ARRAY * 6, ARRAY * 14] * 3))


def test_allgather_and_reducescatter(members: list[Any]) -> None:
    with InputNode() as x:
        nodes = [one.times.bind(x) for one in members]
        outputs = [*allgather.bind(nodes), *reducescatter.bind(nodes)]
    results = both(outputs, ARRAY)
    everything = np.concatenate([ARRAY, ARRAY * 2, ARRAY * 3])
    assert all(np.array_equal(one, everything) for one in results[:3])
    assert [one.tolist() for one in results[3:]] == [[0, 6], [12, 18], [24, 30]]


@pytest.mark.parametrize("operation", [allreduce, allgather, reducescatter])
def test_what_is_no_tensor_is_an_error_of_the_result(members: list[Any], operation: Any) -> None:
    with InputNode() as x:
        graph = MultiOutputNode(operation.bind([one.text.bind(x) for one in members]))
    compiled = graph.experimental_compile()
    with pytest.raises(ValueError, match="Expected a torch tensor or a numpy array"):
        ray.get(compiled.execute(ARRAY), timeout=WAIT_S)
    compiled.teardown()


def test_a_dimension_that_cannot_be_divided(members: list[Any]) -> None:
    with InputNode() as x:
        graph = MultiOutputNode(reducescatter.bind([one.times.bind(x) for one in members]))
    with pytest.raises(ValueError, match="divisible by the world size 3"):
        ray.get(graph.execute(np.ones(4)), timeout=WAIT_S)


def test_what_is_refused(members: list[Any]) -> None:
    with InputNode() as x:
        nodes = [one.times.bind(x) for one in members]
        other = [one.times.bind(x) for one in members[::-1]]
        for arguments, match in (
            (([],), "non-empty"),
            (([1, 2],), "to be DAGNode"),
            (([nodes[0], nodes[0]],), "duplicates"),
            (([nodes[0], members[0].times.bind(x)],), "unique actor handles"),
            (([x],), "an actor handle"),
            (([nodes, nodes[:2]],), "same number"),
            (([nodes, other],), "same order"),
            ((nodes, "sum"), "Unexpected operation"),
            ((nodes, ReduceOp.SUM, "nccl"), "transport='nccl'"),
        ):
            with pytest.raises(ValueError, match=match):
                allreduce.bind(*arguments)
        with pytest.raises(ValueError, match="only supported for allreduce"):
            allgather.bind([nodes, other])


def test_groups(members: list[Any]) -> None:
    group = collective.create_collective_group(members, "gloo")
    assert ray.get([one.rank.remote(group.name) for one in members], timeout=WAIT_S) == [0, 1, 2]
    assert [group.get_rank(one) for one in members] == [0, 1, 2]
    assert (group.actors, group.backend) == (members, "GLOO")
    assert collective.get_collective_groups(members[:1], "torch_gloo") == [group]
    assert collective.get_collective_groups(members, "nccl") == []
    with pytest.raises(RuntimeError, match="at most one group per backend"):
        collective.create_collective_group(members[:1], "gloo")
    with pytest.raises(ValueError, match="must be unique"):
        collective.create_collective_group(members[:1] * 2, "gloo")
    collective.destroy_collective_group(group)
    with pytest.raises(ValueError, match="No group with name"):
        collective.destroy_collective_group(group.name)
    collective.create_collective_group(members, "gloo", "named")
    assert ray.get(members[0].__ray_call__.remote(lambda self: self.factor)) == 1
    collective.destroy_all_collective_groups()
    assert collective.get_collective_groups() == []
