"""More data than the object store holds: it goes to disk, comes back, and leaves nothing."""

from __future__ import annotations

import os
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.polling import eventually
from tests.under_test import OWN, init, ray

MIB = 2**20
STORE_BYTES = 80 * MIB
PIECE = 10 * MIB


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, no_leaks: None) -> Iterator[pathlib.Path]:
    path = tmp_path_factory.mktemp("spilled")
    init(num_cpus=4, object_store_memory=STORE_BYTES, object_spilling_directory=str(path))
    yield path
    ray.shutdown()
    if OWN:
        assert os.listdir(path) == []


pytestmark = pytest.mark.usefixtures("folder")


def piece(number: int) -> Any:
    return np.full(PIECE, number, dtype=np.uint8)


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def is_piece(array: Any, number: int) -> bool:
    return len(array) == PIECE and int(array[0]) == int(array[-1]) == number


def test_objects_beyond_the_store_are_all_there(folder: pathlib.Path) -> None:
    refs = [ray.put(piece(number)) for number in range(20)]
    assert files(folder)
    for number, ref in enumerate(refs):
        assert is_piece(ray.get(ref), number)
    for number, ref in reversed(list(enumerate(refs))):
        assert is_piece(ray.get(ref), number)
    node_id = ray.get_runtime_context().get_node_id()
    assert [path.name for path in folder.iterdir()] == [f"ray_spilled_objects_{node_id}"]


def test_the_files_go_with_the_references(folder: pathlib.Path) -> None:
    refs = [ray.put(piece(number)) for number in range(12)]
    assert eventually(lambda: files(folder))
    del refs
    if OWN:
        assert eventually(lambda: not files(folder))


def test_dropped_references_need_no_disk(folder: pathlib.Path) -> None:
    if OWN:
        assert eventually(lambda: not files(folder))
    for number in range(40):
        ray.put(piece(number))
    if OWN:
        assert eventually(lambda: not files(folder))


def test_all_of_it_at_once() -> None:
    refs = [ray.put(piece(number)) for number in range(16)]
    arrays = ray.get(refs)
    del refs
    more = [ray.put(piece(number)) for number in range(8)]  # every array in the store is in use
    for number, array in enumerate(arrays):
        assert is_piece(array, number)
    assert is_piece(ray.get(more[7]), 7)


def test_what_was_read_from_disk_is_read_only_too() -> None:
    refs = [ray.put(piece(number)) for number in range(12)]
    for ref in refs:
        with pytest.raises(ValueError, match="read-only"):
            ray.get(ref)[0] = 1


def test_one_object_larger_than_the_store() -> None:
    big = np.arange(STORE_BYTES // 8 + MIB)
    ref = ray.put(big)
    assert np.array_equal(ray.get(ref), big)

    @ray.remote
    def total(array: Any) -> int:
        return int(array.sum())

    assert ray.get(total.remote(ref)) == int(big.sum())


def test_results_of_tasks_beyond_the_store() -> None:
    @ray.remote
    def make(number: int) -> Any:
        return piece(number)

    refs = [make.remote(number) for number in range(20)]
    ready, rest = ray.wait(refs, num_returns=20, timeout=60)
    assert (len(ready), rest) == (20, [])
    for number, ref in enumerate(refs):
        assert is_piece(ray.get(ref), number)


def test_many_results_of_one_task() -> None:
    @ray.remote(num_returns=12)
    def make() -> list[Any]:
        return [piece(number) for number in range(12)]

    assert all(is_piece(array, number) for number, array in enumerate(ray.get(make.remote())))


def test_arguments_beyond_the_store() -> None:
    @ray.remote
    def first(*arrays: Any) -> list[int]:
        return [int(array[0]) for array in arrays]

    refs = [ray.put(piece(number)) for number in range(14)]
    assert ray.get(first.remote(*refs)) == list(range(14))


def test_chains_of_tasks_over_spilled_objects() -> None:
    @ray.remote
    def add(array: Any) -> Any:
        return array + 1

    refs = [ray.put(piece(number)) for number in range(8)]
    for _ in range(3):
        refs = [add.remote(ref) for ref in refs]
    assert [int(array[0]) for array in ray.get(refs)] == list(range(3, 11))


def test_actors_and_threads_at_once() -> None:
    @ray.remote
    class Keeper:
        def __init__(self) -> None:
            self.refs: list[Any] = []

        def keep(self, number: int) -> None:
            self.refs.append(ray.put(piece(number)))

        def kept(self) -> list[int]:
            return [int(ray.get(ref)[-1]) for ref in self.refs]

    keepers = [Keeper.remote() for _ in range(3)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            ref = ray.put(piece(number))
            ray.get([keeper.keep.remote(number) for keeper in keepers])
            assert is_piece(ray.get(ref), number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    for keeper in keepers:
        assert sorted(ray.get(keeper.kept.remote())) == list(range(6))


def test_small_objects_are_spilled_too() -> None:
    refs = [ray.put(np.full(MIB // 4, number % 256, dtype=np.uint8)) for number in range(400)]
    assert [int(ray.get(ref)[5]) for ref in refs] == [number % 256 for number in range(400)]
