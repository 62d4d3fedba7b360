"""Data of four times the store's size: right, and within the bounds of memory and disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import runtime as ray
import runtime.data
from runtime._extension.store import stores
from runtime.data._exec import sizing
from runtime.data.dataset import Dataset
from tests.polling import eventually

MIB = 1 << 20
STORE = 80 * MIB
CPUS = 2
ROWS = 4 * STORE // 256


@pytest.fixture(scope="module", autouse=True)
def session(no_leaks: None) -> Iterator[None]:
    ray.init(num_cpus=CPUS, object_store_memory=STORE)
    yield
    ray.shutdown()


class Meter:
    """The most that the store has held in memory while the block ran, and what went to disk."""

    def __enter__(self) -> Meter:
        self.peak_bytes = 0
        self._before = stores()[0].spilled_bytes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.spilled_bytes = stores()[0].spilled_bytes - self._before

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            self.peak_bytes = max(self.peak_bytes, stores()[0].used_bytes)


def wide() -> Dataset:
    """Rows of 256 bytes: an id, a key in no order, and the id again 30 times."""

    def widen(batch: Any) -> Any:
        ids = batch["id"]
        return {"id": ids, "k": ids * 2654435761 % ROWS, "x": np.repeat(ids, 30).reshape(-1, 30)}

    return runtime.data.range(ROWS).map_batches(widen)


def batches(dataset: Dataset) -> Iterator[Any]:
    for batch in dataset.iter_batches(batch_size=None, batch_format="numpy"):
        assert (batch["x"][:, 7] == batch["id"]).all()
        # Copies: views of a batch would keep all of its block in the store.
        yield {"id": batch["id"].copy(), "k": batch["k"].copy()}


def test_a_map_holds_its_budget_and_a_block_for_each_task() -> None:
    facts = sizing.Facts(CPUS, STORE)
    budget = sizing.budget(facts, None)
    block = sizing.target_bytes(facts, budget, None) * 3 // 2
    with Meter() as meter:
        ids = np.concatenate([batch["id"] for batch in batches(wide().map_batches(lambda batch: batch))])
    assert (ids == np.arange(ROWS)).all()
    assert meter.peak_bytes <= budget + (CPUS + 1) * block
    assert meter.spilled_bytes == 0


@pytest.mark.parametrize("how", ["sort", "random_shuffle"])
def test_an_exchange_writes_its_rows_to_disk_three_times_at_most(how: str) -> None:
    with Meter() as meter:
        made = wide().sort("k") if how == "sort" else wide().random_shuffle(seed=3)
        seen = [(batch["k"], batch["id"]) for batch in batches(made)]
    keys, ids = (np.concatenate(each) for each in zip(*seen, strict=True))
    if how == "sort":
        assert (np.diff(keys) >= 0).all()
    assert (np.sort(ids) == np.arange(ROWS)).all()
    assert meter.peak_bytes <= STORE
    assert meter.spilled_bytes <= 3 * 4 * STORE
    assert eventually(lambda: not any(held.disk_bytes > MIB for held in stores()[0].jobs.values()))


def test_groups_are_whole() -> None:
    with Meter() as meter:
        sums = wide().map_batches(lambda batch: {**batch, "g": batch["id"] % 100}).groupby("g").sum("id")
        found = {row["g"]: row["sum(id)"] for row in sums.take_all()}
    assert found == {g: sum(range(g, ROWS, 100)) for g in range(100)}
    assert meter.peak_bytes <= STORE
