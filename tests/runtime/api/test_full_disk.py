"""When neither memory nor disk has room, the error says so, and the program can go on with less."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.under_test import exceptions, init, ray

MIB = 2**20


@pytest.fixture(scope="module", autouse=True)
def full_disk(no_leaks: None) -> Iterator[None]:
    """A store of 80 MiB, and a disk that counts as full from the first byte on."""
    config = {"local_fs_capacity_threshold": 0.0}
    init(num_cpus=2, object_store_memory=80 * MIB, _system_config=config)
    yield
    ray.shutdown()


def piece(number: int) -> Any:
    return np.full(10 * MIB, number, dtype=np.uint8)


def test_put_fails_and_what_is_there_stays() -> None:
    refs = [ray.put(piece(number)) for number in range(6)]
    with pytest.raises(exceptions.OutOfDiskError):
        ray.put(np.zeros(100 * MIB, dtype=np.uint8))
    assert [int(ray.get(ref)[0]) for ref in refs] == list(range(6))
    del refs
    assert int(ray.get(ray.put(piece(7)))[0]) == 7


def test_a_task_whose_result_has_no_room_fails() -> None:
    @ray.remote
    def make() -> Any:
        return np.zeros(100 * MIB, dtype=np.uint8)

    with pytest.raises(exceptions.RayTaskError) as caught:
        ray.get(make.remote(), timeout=60)
    assert isinstance(caught.value, exceptions.OutOfDiskError)
