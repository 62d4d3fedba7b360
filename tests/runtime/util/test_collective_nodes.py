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
from tests.runtime.util.test_collective_groups import WAIT_S, Member, expected


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
