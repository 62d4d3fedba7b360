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
        collective.init_collective_group(world_size, rank, "gloo", group, gloo_timeout=120_000)
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

    def of_argument(self, operation: str, array: Any, *args: Any) -> Any:
        """The operation on the argument itself, which is read-only."""
        assert not isinstance(array, np.ndarray) or not array.flags.writeable
        if operation == "reducescatter":
            collective.reducescatter(array, [array, array], *args)
        else:
            getattr(collective, operation)(array, *args)
        return array

    def gather_into(self, targets: Any, value: Any, group: str) -> Any:
        collective.allgather(targets, value, group)
        return targets

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
    return ray.get(calls, timeout=120)


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
    assert ray.get(members[1].run.remote("recv", [0, 0], 0, "g"), timeout=120) == [5, 6]
    ray.get(sent)
    with pytest.raises(RuntimeError, match="self"):
        ray.get(members[0].run.remote("send", [1], 0, "g"))


def test_large_tensors(members: list[Any]) -> None:
    assert both(members, "large", "g") == [8 * 2**18] * 2


SIZES = pytest.mark.parametrize("size", [2, 2**16], ids=["in the message", "in the store"])
OPERATIONS = pytest.mark.parametrize(
    ("operation", "args", "expected"),
    [
        ("allreduce", ("g",), (4, 4)),
        ("reduce", (0, "g"), (4, 3)),
        ("broadcast", (1, "g"), (3, 3)),
        ("reducescatter", ("g",), (4, 4)),
    ],
)


@SIZES
@OPERATIONS
def test_on_arguments(
    members: list[Any], operation: str, args: Any, expected: tuple[float, float], size: int
) -> None:
    refs = [ray.put(np.full(size, value)) for value in (1.0, 3.0)]
    results = ray.get(
        [member.of_argument.remote(operation, ref, *args) for member, ref in zip(members, refs, strict=True)],
        timeout=30,
    )
    for result, value in zip(results, expected, strict=True):
        assert result.tolist() == [value] * size
    for ref, value in zip(refs, (1, 3), strict=True):
        assert set(ray.get(ref)) == {value}  # what others read is as it was


@SIZES
def test_one_to_one_into_an_argument(members: list[Any], size: int) -> None:
    ref = ray.put(np.zeros(size))
    calls = [
        members[0].run.remote("send", [5.0] * size, 1, "g"),
        members[1].of_argument.remote("recv", ref, 0, "g"),
    ]
    assert ray.get(calls, timeout=120)[1].tolist() == [5] * size
    assert not ray.get(ref).any()


@OPERATIONS
def test_on_torch_tensors_that_are_arguments(
    members: list[Any], operation: str, args: Any, expected: tuple[float, float]
) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    tensors = [torch.full((2**16,), value) for value in (1.0, 3.0)]
    results = both(members, "of_argument", operation, tuple(tensors), *args)
    for result, value in zip(results, expected, strict=True):
        assert bool((result == value).all())


def test_gathering_into_arguments(members: list[Any]) -> None:
    results = both(members, "gather_into", [np.zeros(2), np.zeros(2)], (np.ones(2), np.full(2, 3.0)), "g")
    assert [[one.tolist() for one in result] for result in results] == [[[1, 1], [3, 3]]] * 2


@pytest.mark.parametrize("shape", [1, 3, (1, 2)], ids=str)
def test_places_of_another_shape(members: list[Any], shape: Any) -> None:
    with pytest.raises(RuntimeError, match="All tensors of allgather must have the same shape"):
        both(members, "gather_into", [np.zeros(shape)] * 2, np.ones(2), "g")
    both(members, "wait", "g")  # the group is still usable


def test_tensors_that_do_not_fit_each_other(members: list[Any]) -> None:
    for operation, args in (("allreduce", ()), ("broadcast", (0,)), ("reduce", (1,))):
        calls = [
            members[rank].of_argument.remote(operation, np.ones(rank + 2), *args, "g") for rank in (0, 1)
        ]
        with pytest.raises(RuntimeError, match=f"All tensors of {operation} must have the same shape"):
            ray.get(calls, timeout=120)
        ray.wait(calls, num_returns=2)


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
    with pytest.raises(RuntimeError, match="NCCL is not available in this process"):
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
