"""Locations of many objects, and figures of the object stores."""

from __future__ import annotations

from typing import Any

import runtime as ray
from runtime import cluster_utils
from runtime._extension import store
from runtime._extension.store import ObjectLocation
from tests.polling import eventually

MIB = 1 << 20


@ray.remote
def blocks(count: int, size: int) -> list[Any]:
    return [ray.put(bytes(size)) for _ in range(count)]


def test_locations_and_figures_of_one_node(fresh: None) -> None:
    ray.init(num_cpus=2, object_store_memory=80 * MIB)
    context = ray.get_runtime_context()
    node = context.get_node_id()
    small, large = ray.put(b"x"), ray.put(bytes(8 * MIB))
    pending = blocks.options(resources={"nowhere": 1}).remote(1, 1)
    found = store.locations([small, large, pending, small])
    assert found[large].node_ids == (node,)
    assert found[large].size_bytes is not None
    assert found[large].size_bytes >= 8 * MIB
    assert found[pending] == ObjectLocation((), None)

    @ray.remote
    def of_others(refs: list[Any]) -> list[Any]:
        return list(store.locations(refs, 60).values())

    assert ray.get(of_others.remote([large, small]))[0] == found[large]

    (use,) = store.stores(everywhere=False)
    assert use.node_id == node
    job = use.jobs[context.get_job_id()]
    assert job.objects >= 1
    assert 8 * MIB <= job.memory_bytes <= use.used_bytes
    assert job.disk_bytes == 0
    assert use.spilled_bytes == 0
    assert use.reserved_bytes >= 0
    assert use.free_bytes <= use.capacity_bytes - use.used_bytes

    refs = [ray.put(bytes(8 * MIB)) for _ in range(20)]

    def is_spilled() -> bool:
        (now,) = store.stores()
        mine = now.jobs[context.get_job_id()]
        return now.spilled_objects > 0 and mine.disk_bytes > 0 and now.spilled_bytes >= mine.disk_bytes

    assert eventually(is_spilled)
    assert ray.get(refs[0]) == bytes(8 * MIB)
    found.clear()
    del refs, large
    assert eventually(lambda: store.stores()[0].jobs.get(context.get_job_id()) is None)


def test_all_nodes_answer_each_for_its_own(fresh: None) -> None:
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        ray.init(address=cluster.address)
        cluster.add_node(num_cpus=1, resources={"there": 1})
        cluster.wait_for_nodes()
        refs = ray.get(blocks.options(resources={"there": 1}).remote(2, 4 * MIB))
        place, other = store.locations(refs, 60).values()
        assert place == other
        here = ray.get_runtime_context().get_node_id()
        uses = {use.node_id: use for use in store.stores()}
        assert len(uses) == 2
        assert place.node_ids != (here,)
        job = ray.get_runtime_context().get_job_id()
        assert uses[place.node_ids[0]].jobs[job].memory_bytes >= 8 * MIB
        assert job not in uses[here].jobs
    finally:
        ray.shutdown()
        cluster.shutdown()
