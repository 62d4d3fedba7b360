"""Several executions of one process at the same time."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.polling import eventually
from tests.under_test import ray

pytestmark = pytest.mark.usefixtures("session")
BLOCKS = 60


def test_data_sets_take_turns() -> None:
    """The one that begins later does not wait for the end of the other, and both get on."""
    taken: list[str] = []

    def work(batch: Any) -> Any:
        time.sleep(0.05)
        return batch

    def consume(name: str) -> None:
        made = ray.data.range(BLOCKS, override_num_blocks=BLOCKS).map_batches(work)
        for _ in made.iter_batches(batch_size=None):
            taken.append(name)

    first, second = (threading.Thread(target=consume, args=(name,)) for name in ("first", "second"))
    first.start()
    assert eventually(lambda: taken)
    second.start()
    first.join()
    second.join()
    begun = taken.index("second")
    ended = min(len(taken) - taken[::-1].index(name) for name in ("first", "second"))
    together = taken[begun:ended]
    assert len(together) > BLOCKS // 2
    for name in ("first", "second"):
        assert together.count(name) >= len(together) // 4
