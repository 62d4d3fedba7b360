"""Who gets the CPUs: pure."""

from __future__ import annotations

from collections import Counter

import pytest

from runtime.data._api.compute import compute_of
from runtime.data._exec import placement
from runtime.data._exec.sizing import Facts
from runtime.data._plan import nodes
from runtime.data._plan.nodes import Compute, Udf

FACTS = Facts(cpus=4, store_bytes=1 << 30)


class Model:
    """A class of the user."""


def pool(size: object, **options: object) -> Compute:
    return compute_of(Model, None, size, options, {})


def test_actors_keep_only_the_cpus_that_the_user_gives_them() -> None:
    assert placement.actor_cpus(pool(2)) == 0
    assert placement.actor_cpus(pool(2, num_cpus=0.5)) == 0.5
    assert [placement.busy_cpus(pool(2, **o)) for o in ({}, {"num_gpus": 1}, {"num_cpus": 2})] == [1, 0, 2]


@pytest.mark.parametrize(("size", "cpus", "left"), [(2, None, 1), (2, 1, 1), (3, 1.5, 0), (7, 0.5, 0.5)])
def test_tasks_take_what_the_pools_leave(size: int, cpus: float | None, left: float) -> None:
    udf = Udf("map_batches", Model)
    read = nodes.Given(())
    plan = nodes.Transform(nodes.Transform(read, udf, Compute()), udf, pool(size, num_cpus=cpus))
    assert placement.task_cpus(FACTS, placement.kept_cpus(plan)) == left


def test_pools_that_grow_leave_a_cpu_for_tasks() -> None:
    assert placement.most_actors(FACTS, pool((1, 10)), 0) == 10
    assert placement.most_actors(FACTS, pool((1, 10), num_cpus=1), 1) == 3
    assert placement.most_actors(FACTS, pool((4, 10), num_cpus=1), 4) == 4
    assert placement.most_actors(FACTS, pool(None), 0) == 4


def test_actors_are_spread_over_the_nodes_by_their_cpus() -> None:
    cpus = {"head": 0.0, "a": 2.0, "b": 4.0}
    assert Counter(placement.node_of(cpus, number) for number in range(12)) == {"a": 4, "b": 8}
    assert placement.node_of({"head": 0.0}, 3) is None
