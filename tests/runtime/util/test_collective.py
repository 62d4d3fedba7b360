"""Collective communication between actors."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from tests.under_test import NAME, OWN, ray

collective: Any = importlib.import_module(f"{NAME}.util.collective")
types: Any = importlib.import_module(f"{NAME}.util.collective.types")
pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.skipif(not OWN, reason="Ray's backend for main memory needs torch"),
]


@ray.remote(num_cpus=0)
class Member:
    def join(self, world_size: int, rank: int, group: str) -> bool:
        collective.init_collective_group(world_size, rank, "gloo", group)
        return bool(collective.is_group_initialized(group))

    def leave(self, group: str) -> bool:
        collective.destroy_collective_group(group)
        return bool(collective.is_group_initialized(group))

    def facts(self, group: str) -> tuple[int, int]:
        return collective.get_rank(group), collective.get_collective_group_size(group)

    def run(self, operation: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        array = np.array(value, dtype=float)
        getattr(collective, operation)(array, *args, **kwargs)
        return array.tolist()

    def gather(self, value: Any, group: str) -> Any:
        targets = [np.zeros(2) for _ in range(2)]
        collective.allgather(targets, np.array(value, dtype=float), group)
        return [target.tolist() for target in targets]

    def reduce_scatter(self, values: Any, group: str) -> Any:
        target = np.zeros(2)
        collective.reducescatter(target, [np.array(value, dtype=float) for value in values], group)
        return target.tolist()

    def wait(self, group: str) -> None:
        collective.barrier(group)

    def large(self, group: str) -> float:
        array = np.ones(2**18)
        for _ in range(3):
            collective.allreduce(array, group)
        return float(array.sum())


@pytest.fixture(scope="module")
def members(session: None) -> list[Any]:
    made = [Member.remote() for _ in range(2)]
    assert ray.get([m.join.remote(2, rank, "g") for rank, m in enumerate(made)]) == [True, True]
    return made


def both(members: list[Any], method: str, *args: Any, **kwargs: Any) -> Any:
    """The results of one call on each member; a list of two as first argument is one for each."""
    calls = []
    for index, member in enumerate(members):
        mine = [arg[index] if isinstance(arg, tuple) else arg for arg in args]
        calls.append(getattr(member, method).remote(*mine, **kwargs))
    return ray.get(calls, timeout=30)


def test_facts(members: list[Any]) -> None:
    assert both(members, "facts", "g") == [(0, 2), (1, 2)]
    assert both(members, "facts", "other") == [(-1, -1), (-1, -1)]


@pytest.mark.parametrize(
    ("op", "expected"),
    [("SUM", [4, 6]), ("PRODUCT", [3, 8]), ("MAX", [3, 4]), ("MIN", [1, 2]), ("AVERAGE", [2, 3])],
)
def test_allreduce(members: list[Any], op: str, expected: list[float]) -> None:
    result = both(members, "run", "allreduce", ([1, 2], [3, 4]), "g", types.ReduceOp[op])
    assert result == [expected, expected]


def test_one_to_all_and_all_to_one(members: list[Any]) -> None:
    assert both(members, "run", "broadcast", ([1, 2], [3, 4]), 1, "g") == [[3, 4], [3, 4]]
    assert both(members, "run", "reduce", ([1, 2], [3, 4]), 0, "g") == [[4, 6], [3, 4]]
    assert both(members, "gather", ([1, 2], [3, 4]), "g") == [[[1, 2], [3, 4]]] * 2
    values = [[1, 1], [2, 2]]
    assert both(members, "reduce_scatter", values, "g") == [[2, 2], [4, 4]]
    both(members, "wait", "g")


def test_one_to_one(members: list[Any]) -> None:
    sent = members[0].run.remote("send", [5, 6], 1, "g")
    assert ray.get(members[1].run.remote("recv", [0, 0], 0, "g"), timeout=30) == [5, 6]
    ray.get(sent)
    with pytest.raises(RuntimeError, match="self"):
        ray.get(members[0].run.remote("send", [1], 0, "g"))


def test_large_tensors(members: list[Any]) -> None:
    assert both(members, "large", "g") == [8 * 2**18] * 2


def test_groups_declared_by_the_driver() -> None:
    made = [Member.remote() for _ in range(2)]
    collective.create_collective_group(made, 2, [1, 0], "gloo", "declared")
    assert both(made, "run", "broadcast", ([1], [2]), 0, "declared") == [[2], [2]]
    assert both(made, "facts", "declared") == [(1, 2), (0, 2)]
    with pytest.raises(RuntimeError, match="twice"):
        collective.create_collective_group(made, 2, [0, 1], "gloo", "declared")
    assert both(made, "leave", "declared") == [False, False]
    for actors, size, ranks in (([1], 0, [0]), (made, 2, [0]), (made, 2, [0, 5])):
        with pytest.raises(RuntimeError):
            collective.create_collective_group(actors, size, ranks, "gloo", "wrong")


def test_what_is_refused() -> None:
    with pytest.raises(RuntimeError, match="not initialized"):
        collective.allreduce(np.ones(1), "unknown")
    with pytest.raises(RuntimeError, match="NCCL is not available"):
        collective.init_collective_group(1, 0, "nccl", "gpu")
    with pytest.raises(RuntimeError, match="Rank 2"):
        collective.init_collective_group(2, 2, "gloo", "rank")
    collective.init_collective_group(1, 0, "gloo", "alone")
    with pytest.raises(RuntimeError, match="twice"):
        collective.init_collective_group(1, 0, "gloo", "alone")
    with pytest.raises(TypeError, match="numpy arrays"):
        collective.allreduce([1], "alone")
    collective.destroy_collective_group("alone")


def test_somebody_is_missing() -> None:
    collective.init_collective_group(2, 0, "gloo", "half", gloo_timeout=200)
    with pytest.raises(TimeoutError, match=r"Ranks \[1\]"):
        collective.barrier("half")
    collective.destroy_collective_group("half")
