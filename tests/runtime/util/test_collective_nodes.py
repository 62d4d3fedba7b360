"""Groups whose members are on several nodes: values go over TCP, slices to those who need them only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.under_test import OWN, ray

if not OWN:
    pytest.skip("what the module does beyond Ray's", allow_module_level=True)

from runtime import cluster_utils
from runtime.util.collective.types import MemberLostError
from tests.runtime.util.test_collective_groups import WAIT_S, Member, expected, values


@pytest.fixture(scope="module")
def nodes() -> Iterator[None]:
    ray.shutdown()
    made = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"here": 10}}
    )
    made.add_node(num_cpus=1, resources={"there": 10})
    ray.init(made.address)
    yield
    ray.shutdown()
    made.shutdown()


def joined(group: str) -> tuple[list[Any], list[int]]:
    members = [Member.options(resources={where: 1}).remote() for where in ("here", "there", "here")]
    return members, ray.get([one.join.remote(3, rank, group) for rank, one in enumerate(members)])


def test_all_operations(nodes: None) -> None:
    members, _ = joined("spread")
    for size in (0, 1, 5000, 70_001):
        found = ray.get([one.all_operations.remote(size, "float32") for one in members], timeout=WAIT_S)
        for rank, results in enumerate(found):
            assert all(map(np.array_equal, results, expected(rank, 3, size, "float32")))


@pytest.mark.parametrize("dying", [1, 2])
def test_a_member_that_dies_is_named_to_all(nodes: None, dying: int) -> None:
    group = f"spread, {dying} dies"
    members, pids = joined(group)
    ray.get([one.call.remote("barrier", group) for one in members], timeout=WAIT_S)
    waiting = members[0].error_of.remote("allreduce", np.ones(500_000), group)
    assert ray.wait([waiting], timeout=0.2)[0] == []
    os.kill(pids[dying], signal.SIGKILL)
    for error in (waiting, members[3 - dying].error_of.remote("barrier", group)):
        kind, text, _ = ray.get(error, timeout=WAIT_S)
        assert kind == MemberLostError.__name__
        assert f"Rank {dying} of the collective group '{group}' is gone: the actor Member " in text


def all_by_torch(self: Any) -> list[Any]:
    """The results of large torch tensors, as `Member.all_operations` orders those of arrays."""
    import torch

    from runtime.util import collective
    from runtime.util.collective.types import ReduceOp

    rank, group, size, results = self.rank, self.group, 70_001, []

    def tensor() -> Any:
        results.append(torch.from_numpy(values(rank, size, "float32")))
        return results[-1]

    for op in ReduceOp:
        collective.allreduce(tensor(), group, op)
    collective.reduce(tensor(), 1, group)
    collective.broadcast(tensor(), self.world_size - 1, group)
    places = [torch.zeros(size) for _ in range(self.world_size)]
    collective.allgather(places, torch.from_numpy(values(rank, size, "float32")), group)
    collective.barrier(group)
    uses_torch = collective.get_group_handle(group)._plane._is_open
    return [uses_torch, *(one.numpy() for one in (*results, *places))]


def torch_zeros(size: int) -> Any:
    import torch

    return torch.zeros(size)


def dies_in_gloo(self: Any) -> None:
    """The next operation of torch's kills the process: after all members have agreed on it."""
    from runtime.util.collective.torch_plane import TorchPlane

    TorchPlane.run = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]


def test_large_torch_tensors_go_by_gloo_and_a_member_that_dies_meanwhile_is_named(nodes: None) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    members, pids = joined("by torch")
    found = ray.get([one.__ray_call__.remote(all_by_torch) for one in members], timeout=WAIT_S)
    for rank, (uses_torch, *results) in enumerate(found):
        assert uses_torch
        assert all(map(np.array_equal, results, expected(rank, 3, 70_001, "float32")))
    calls = [
        one.error_of.remote("allreduce", torch_zeros(100_000 + rank), "by torch")
        for rank, one in enumerate(members)
    ]
    for kind, text, _ in ray.get(calls, timeout=WAIT_S):
        assert kind == "RuntimeError"
        assert "All tensors of allreduce must have the same shape and dtype" in text
    # A member dies while Gloo is at work elsewhere.
    ray.get(members[2].__ray_call__.remote(dies_in_gloo))
    calls = [one.error_of.remote("allreduce", torch_zeros(100_000), "by torch") for one in members]
    for error in calls[:2]:
        kind, text, _ = ray.get(error, timeout=WAIT_S)
        assert kind == MemberLostError.__name__
        assert f"(pid {pids[2]} on " in text
