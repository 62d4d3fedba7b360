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


def test_what_objects_take_by_the_tasks_that_made_them(fresh: None) -> None:
    ray.init(num_cpus=2, object_store_memory=160 * MIB)

    @ray.remote
    def chosen() -> Any:
        with store.tagged("inner"):
            return [ray.put(bytes(3 * MIB)), bytes(2 * MIB)]

    @ray.remote(num_returns="streaming")
    def items() -> Any:
        for _ in range(2):
            yield bytes(4 * MIB)

    @ray.remote
    class Actor:
        async def method(self) -> bytes:
            return bytes(5 * MIB)

    actor = Actor.remote()
    held = [
        *ray.get(blocks.options(name="operator 1").remote(3, MIB)),
        chosen.remote(),
        *items.options(name="operator 2").remote(),
        actor.method.options(name="operator 3").remote(),
        ray.put(bytes(6 * MIB)),
    ]
    with store.tagged("outer"):
        held.append(ray.put(bytes(7 * MIB)))
    ray.wait(held, num_returns=len(held), fetch_local=False)
    expected = {
        "operator 1": (3, 3),
        "chosen": (2, 1),
        "inner": (3, 1),
        "operator 2": (8, 2),
        "operator 3": (5, 1),
        "": (6, 1),
        "outer": (7, 1),
    }

    def tags() -> dict[str, tuple[int, int]]:
        (use,) = store.stores()
        assert all(found.disk_bytes == 0 for found in use.tags.values())
        return {tag: (found.memory_bytes // MIB, found.objects) for tag, found in use.tags.items()}

    assert eventually(lambda: tags() == expected), tags()
    held.clear()
    assert eventually(lambda: not tags())


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
