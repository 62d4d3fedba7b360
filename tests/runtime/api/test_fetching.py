"""Objects of other nodes: `wait` brings them here, or does not; spilled ones come straight from the other's disk."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.polling import eventually
from tests.under_test import NAME, OWN, exceptions, ray

Cluster: Any = importlib.import_module(f"{NAME}.cluster_utils").Cluster
MIB = 2**20
PIECE = 10 * MIB


@pytest.fixture(scope="module", autouse=True)
def cluster(no_leaks: None) -> Iterator[Any]:
    """A head without CPUs for tasks, and a node with a small store."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    made.add_node(num_cpus=2, object_store_memory=80 * MIB)
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@ray.remote
def make(number: int) -> Any:
    return np.full(PIECE, number, dtype=np.uint8)


@ray.remote(num_cpus=0)
class Keeper:
    def put(self, count: int) -> list[Any]:
        return [ray.put(np.full(PIECE, number, dtype=np.uint8)) for number in range(count)]


def nodes_of(ref: Any) -> list[str]:
    locations = importlib.import_module(f"{NAME}.experimental").get_object_locations
    return list(locations([ref])[ref]["node_ids"])


def here() -> str:
    return str(ray.get_runtime_context().get_node_id())


def test_wait_without_fetching_leaves_the_object_where_it_is() -> None:
    ref = make.remote(1)
    assert ray.wait([ref], timeout=60, fetch_local=False) == ([ref], [])
    assert here() not in nodes_of(ref)


def test_wait_brings_the_object_here() -> None:
    ref = make.remote(1)
    assert ray.wait([ref], timeout=60) == ([ref], [])
    assert eventually(lambda: here() in nodes_of(ref))
    assert ray.get(ref, timeout=0)[0] == 1


def test_polling_brings_it_too() -> None:
    ref = make.remote(1)
    assert eventually(lambda: ray.wait([ref], timeout=0)[0] == [ref])
    assert ray.get(ref, timeout=60)[0] == 1


def test_some_of_many() -> None:
    refs = [make.remote(number) for number in range(4)]
    ready, rest = ray.wait(refs, num_returns=2, timeout=60)
    assert len(ready) == 2
    assert sorted([*ready, *rest], key=refs.index) == refs
    ready, rest = ray.wait(refs, num_returns=4, timeout=60)
    assert (ready, rest) == (refs, [])


def test_wait_brings_what_exists_beyond_the_number_asked_for() -> None:
    refs = [make.remote(number) for number in range(2)]
    ray.wait(refs, num_returns=2, timeout=60, fetch_local=False)
    small = ray.put(0)
    assert ray.wait([small, *refs], timeout=60) == ([small], refs)
    for ref in refs:
        assert eventually(lambda ref=ref: here() in nodes_of(ref))


def test_a_borrowed_object() -> None:
    keeper = Keeper.remote()
    (ref,) = ray.get(keeper.put.remote(1))
    assert ray.wait([ref], timeout=60) == ([ref], [])
    assert ray.get(ref, timeout=60)[0] == 0


@pytest.mark.skipif(not OWN, reason="Ray keeps copies until it needs their memory")
def test_copies_of_what_a_dead_process_owned_go_everywhere(cluster: Any) -> None:
    def is_free() -> bool:
        name = "object_store_memory"
        return bool(ray.available_resources()[name] == ray.cluster_resources()[name])

    assert eventually(is_free)
    node = cluster.add_node(num_cpus=1, resources={"short-lived": 1})
    keeper = Keeper.options(resources={"short-lived": 1}).remote()
    (ref,) = ray.get(keeper.put.remote(1))
    assert ray.get(ref, timeout=60)[0] == 0
    assert eventually(lambda: here() in nodes_of(ref))
    assert eventually(lambda: not is_free())
    cluster.remove_node(node, allow_graceful=False)
    assert eventually(is_free)


def test_spilled_objects_of_another_node() -> None:
    refs = [make.remote(number) for number in range(16)]
    assert len(ray.wait(refs, num_returns=16, timeout=60, fetch_local=False)[0]) == 16
    for number, ref in enumerate(refs):
        array = ray.get(ref, timeout=60)
        assert (len(array), int(array[0]), int(array[-1])) == (PIECE, number, number)


def test_spilled_objects_of_another_owner() -> None:
    keeper = Keeper.remote()
    refs = ray.get(keeper.put.remote(16))
    for number, ref in enumerate(refs):
        array = ray.get(ref, timeout=60)
        assert (len(array), int(array[0]), int(array[-1])) == (PIECE, number, number)


@pytest.mark.skipif(not OWN, reason="waits long for a dead node")
def test_wait_for_what_is_lost_with_its_node(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=1, resources={"doomed": 1})
    lost = make.options(resources={"doomed": 0.1}, max_retries=0).remote(1)
    again = make.options(resources={"doomed": 0.1}).remote(2)
    ray.wait([lost, again], num_returns=2, timeout=60, fetch_local=False)
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(num_cpus=1, resources={"doomed": 1})
    assert ray.wait([lost, again], num_returns=2, timeout=60) == ([lost, again], [])
    with pytest.raises(exceptions.ObjectReconstructionFailedError):
        ray.get(lost)
    assert ray.get(again)[0] == 2
