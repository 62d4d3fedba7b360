"""Objects that a process places by itself and objects that it asks the node for: nobody can tell one from the other."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.polling import eventually
from tests.under_test import OWN, ray

SIZES = pytest.mark.parametrize("size", [2**18, 20 * 2**20], ids=["placed", "asked for"])
"""In bytes: what a process is allotted at a time lies between them."""

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(scope="module")
def cluster(no_leaks: None) -> Iterator[None]:
    ray.init(num_cpus=2, log_to_driver=False, object_store_memory=2 * 2**30)
    yield
    ray.shutdown()


def filled(size: int, value: int) -> Any:
    return np.full(size, value, np.uint8)


def holds(array: Any, value: int) -> bool:
    return bool((array == value).all())


@ray.remote
def make(size: int, value: int) -> Any:
    return filled(size, value)


@ray.remote
def same(array: Any, value: int) -> bool:
    return holds(array, value)


@SIZES
def test_what_is_put_does_not_change_with_its_source(size: int) -> None:
    source = filled(size, 1)
    ref = ray.put(source)
    source[:] = 2
    assert holds(ray.get(ref), 1)
    assert ray.get(same.remote(ref, 1))


@SIZES
def test_what_is_read_stays_when_its_reference_is_gone(size: int) -> None:
    ref = ray.put(filled(size, 1))
    array = ray.get(ref)
    del ref
    for value in range(2, 8):
        ray.put(filled(size, value))
        assert ray.get(make.remote(size, value))[0] == value
    assert holds(array, 1)
    result = ray.get(make.remote(size, 9))
    for value in range(10, 16):
        ray.get(make.remote(size, value))
    assert holds(result, 9)


@SIZES
def test_what_was_just_put_is_found_by_everybody(size: int) -> None:
    @ray.remote
    def inner(refs: list[Any]) -> bool:
        return all(holds(ray.get(ref), value) for value, ref in enumerate(refs))

    refs = [ray.put(filled(size, value)) for value in range(3)]
    assert ray.get(inner.remote(refs))
    assert ray.get(inner.remote([ray.put(filled(size, value)) for value in range(3)]))
    assert ray.get(same.remote(ray.put(filled(size, 4)), 4))
    assert all(ray.get([same.remote(make.remote(size, value), value) for value in range(5)]))


@SIZES
def test_a_worker_puts_for_others(size: int) -> None:
    @ray.remote
    class Putter:
        def put(self, value: int) -> list[Any]:
            return [ray.put(filled(size, value)), make.remote(size, value)]

    putter = Putter.remote()
    for value in range(3):
        put, made = ray.get(putter.put.remote(value))
        assert ray.get(same.remote(put, value))
        assert holds(ray.get(put), value)
        assert holds(ray.get(made), value)


@SIZES
def test_several_results_and_items(size: int) -> None:
    @ray.remote(num_returns=3)
    def three() -> Any:
        return [filled(size, value) for value in range(3)]

    @ray.remote(num_returns="streaming")
    def stream() -> Any:
        for value in range(3):
            yield filled(size, value)

    assert [int(array[0]) for array in ray.get(three.remote())] == [0, 1, 2]
    assert all(holds(ray.get(ref), value) for value, ref in enumerate(stream.remote()))


@SIZES
def test_a_result_is_made_again_after_its_worker_died(size: int, tmp_path: Any) -> None:
    @ray.remote(max_retries=2)
    def dies_once(path: str) -> Any:
        array = filled(size, 7)
        if not os.path.exists(path):
            open(path, "w").close()
            ray.put(array)
            os._exit(1)
        return array

    ref = dies_once.remote(str(tmp_path / "died"))
    assert holds(ray.get(ref), 7)
    assert ray.get(same.remote(ref, 7))


@pytest.mark.skipif(not OWN, reason="looks into the object store")
@SIZES
def test_all_memory_comes_back(size: int) -> None:
    def free() -> float:
        return float(ray.available_resources()["object_store_memory"])

    gc.collect()
    assert eventually(lambda: free() == ray.cluster_resources()["object_store_memory"])
    kept = [ray.put(filled(size, 1)), make.remote(size, 1)]
    ray.wait(kept, num_returns=2)
    total = ray.cluster_resources()["object_store_memory"]
    assert eventually(lambda: 2 * size <= total - free() <= 2 * (size + 2**13))
    for value in range(20):
        ray.put(filled(size, value))
        ray.get(make.remote(size, value))
        ray.get([same.remote(kept[0], 1), same.remote(make.remote(size, value), value)])
    assert eventually(lambda: 2 * size <= total - free() <= 2 * (size + 2**13))
    array = ray.get(kept.pop())
    kept.clear()
    assert eventually(lambda: size <= total - free() <= size + 2**13)
    del array
    assert eventually(lambda: free() == total)
