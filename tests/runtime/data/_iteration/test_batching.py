"""Batches as they were asked for, also from blocks whose columns cannot be viewed as arrays."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from runtime.data._block import batcher, tensor
from runtime.data._iteration.batching import Batching


def tables(rows: int = 1000, blocks: int = 3) -> list[pa.Table]:
    borders = np.linspace(0, rows, blocks + 1).astype(int)
    return [
        pa.table(
            {
                "x": np.arange(a, b),
                "t": tensor.from_numpy(np.arange(a, b, dtype=np.float32).repeat(100).reshape(-1, 100)),
                "s": [f"row {i}" for i in range(a, b)],
            }
        )
        for a, b in itertools.pairwise(borders)
    ]


def rows_of(batches: Any) -> list[int]:
    made = list(batches)
    assert all(rows == len(batch["x"]) for rows, batch in made)
    return [int(x) for _, batch in made for x in batch["x"]]


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow"])
@pytest.mark.parametrize("batch_size", [1, 7, 256, 5000, None])
@pytest.mark.parametrize("columns", [["x"], ["x", "t"], ["x", "s"]])
def test_rows_in_order(batch_format: str, batch_size: int | None, columns: list[str]) -> None:
    blocks = [table.select(columns) for table in tables(300)]
    batching = Batching(batch_size, batch_format)
    made = list(batching.batches(blocks))
    assert [rows for rows, _ in made] == [len(batch["x"]) for _, batch in made]
    if batch_size is not None:
        assert {rows for rows, _ in made[:-1]} <= {batch_size}
    xs = [np.asarray(batch["x"]) for _, batch in made]
    assert np.concatenate(xs).tolist() == list(range(300))
    for _, batch in made:
        if "s" in columns:
            assert list(map(str, batch["s"])) == [f"row {x}" for x in np.asarray(batch["x"])]


def test_arrays_are_views_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = tables(100, 1)
    address = block["x"].chunk(0).buffers()[1].address
    made = [batch for _, batch in Batching(10).batches([block.select(["x", "t"])])]
    assert [each["x"].ctypes.data - address for each in made] == list(range(0, 800, 80))
    assert not made[0]["t"].flags.writeable
    monkeypatch.setattr(batcher, "CONVERTED_BYTES", 500)  # of which some batches are converted at a time
    assert rows_of(Batching(10).batches([block])) == list(range(100))


def test_batches_without_columns() -> None:
    assert [rows for rows, _ in Batching(4).batches([pa.table({"x": range(10)}).select([])])] == [4, 4, 2]


def test_shuffled_batches_have_memory_of_their_own() -> None:
    batching = Batching(16, shuffle_rows=100)
    made = list(batching.batches(tables(), seed=1))
    assert sorted(int(x) for _, batch in made for x in batch["x"]) == list(range(1000))
    for _, batch in made:
        assert (batch["t"][:, 99] == batch["x"]).all()
        assert batch["s"].tolist() == [f"row {x}" for x in batch["x"]]
        batch["t"][:] = -1
        batch["x"][:] = -1
    assert rows_of(batching.batches(tables(), seed=1)) != rows_of(batching.batches(tables(), seed=2))


def test_a_shuffle_goes_on_in_the_middle() -> None:
    batching = Batching(16, shuffle_rows=100)
    whole = rows_of(batching.batches(tables(), seed=3))
    assert rows_of(batching.batches(tables(), seed=3, skip=480)) == whole[480:]


def test_what_is_done_to_batches() -> None:
    batching = Batching(500, collate=lambda batch: batch["x"].sum(), finalize=lambda total: total + 1)
    assert [batch for _, batch in batching.batches(tables())] == [
        sum(range(500)) + 1,
        sum(range(500, 1000)) + 1,
    ]


def test_wrong_options() -> None:
    for wrong in ({"batch_size": 0}, {"batch_format": "json"}, {"batch_size": None, "shuffle_rows": 5}):
        with pytest.raises(ValueError):
            Batching(**wrong)
