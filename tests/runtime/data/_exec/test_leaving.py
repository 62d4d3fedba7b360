"""A program that calls `shutdown` while it still holds an iterator."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import ray


@pytest.mark.usefixtures("fresh")
def test_what_is_left_of_a_data_set_starts_no_other_session() -> None:
    def slow(batch: Any) -> Any:
        time.sleep(0.02)
        return batch

    before = set(threading.enumerate())
    ray.init(num_cpus=2)
    data = ray.data.range(4000, override_num_blocks=400).map_batches(slow)
    data.set_name("left")  # so that its metrics are shown, by another thread
    batches = iter(data.iter_batches(batch_size=10))
    next(batches)
    ray.shutdown()
    with pytest.raises(ray.exceptions.RaySystemError):
        list(batches)
    assert eventually(lambda: not set(threading.enumerate()) - before)
    assert not ray.is_initialized()
