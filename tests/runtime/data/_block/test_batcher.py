"""Batches from blocks of random sizes hold the same rows; shuffled ones each row once."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from runtime.data._block import batch, batcher, tensor


def blocks(seed: int) -> tuple[list[pa.Table], int]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 20, rng.integers(0, 12)).tolist()
    starts = np.cumsum([0, *sizes])
    made = [pa.table({"x": np.arange(a, b)}) for a, b in itertools.pairwise(starts)]
    return made, sum(sizes)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("batch_size", [1, 3, 16, 500])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_in_order(seed: int, batch_size: int, drop_last: bool) -> None:
    tables, total = blocks(seed)
    got = list(batcher.batches(tables, batch_size, drop_last))
    rows = [row for table in got for row in table["x"].to_pylist()]
    assert rows == list(range(total - total % batch_size if drop_last else total))
    assert all(table.num_rows == batch_size for table in got[:-1])
    assert all(table.num_rows for table in got)


def test_a_batch_inside_a_block_is_a_view() -> None:
    table = pa.table({"x": np.arange(10)})
    got = list(batcher.batches([table], 5))
    address = table["x"].chunk(0).buffers()[1].address
    assert [part["x"].chunk(0).buffers()[1].address for part in got] == [address, address]


def test_blocks_as_they_are() -> None:
    tables = [pa.table({"x": [1]}), pa.table({"x": pa.array([], pa.int64())}), pa.table({"x": [2, 3]})]
    assert [table.num_rows for table in batcher.batches(tables, None)] == [1, 2]


def test_blocks_without_columns() -> None:
    got = list(batcher.batches([batch.empty_columns(3), batch.empty_columns(4)], 5))
    assert [table.num_rows for table in got] == [5, 2]


def test_blocks_of_different_types_are_widened() -> None:
    got = list(batcher.batches([pa.table({"x": [1]}), pa.table({"x": [1.5], "y": ["a"]})], 2))
    assert got[0].to_pydict() == {"x": [1.0, 1.5], "y": [None, "a"]}


def test_a_batch_has_rows() -> None:
    with pytest.raises(ValueError, match="batch_size is 0"):
        list(batcher.batches([], 0))
    with pytest.raises(ValueError, match="size is 0"):
        batcher.ShuffleBuffer(0)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("batch_size", "min_rows"), [(1, 1), (4, 10), (16, 5), (7, 1000)])
def test_shuffled_batches_hold_each_row_once(seed: int, batch_size: int, min_rows: int) -> None:
    tables, total = blocks(seed)
    got = list(batcher.shuffled_batches(tables, batch_size, min_rows, seed))
    assert sorted(row for table in got for row in table["x"].to_pylist()) == list(range(total))
    assert all(table.num_rows == batch_size for table in got[:-1])
    again = list(batcher.shuffled_batches(tables, batch_size, min_rows, seed))
    assert [table.to_pydict() for table in again] == [table.to_pydict() for table in got]


def test_a_batch_is_drawn_from_the_whole_window() -> None:
    tables = [pa.table({"x": np.arange(start, start + 10)}) for start in range(0, 2000, 10)]
    first = next(batcher.shuffled_batches(tables, 100, 500, seed=1))["x"].to_numpy()
    assert first.max() > 800
    assert len(set(first // 100)) > 5


def test_the_window_is_bounded() -> None:
    buffer = batcher.ShuffleBuffer(100, seed=1)
    most = 0
    for _ in range(200):
        buffer.add(pa.table({"x": np.arange(10)}))
        most = max(most, buffer.rows)
        while buffer.draw(16) is not None:
            assert buffer.rows >= 100
    assert most <= 2 * 100 + 16 + 10


def test_all_columns_of_a_row_are_drawn_together() -> None:
    made = [
        pa.table(
            {"x": np.arange(a, a + 7), "t": tensor.from_numpy(np.full((7, 2), a) + np.arange(7)[:, None])}
        )
        for a in range(0, 70, 7)
    ]
    with_null = pa.table(
        {"x": [70, 71], "t": tensor.from_numpy(np.zeros((1, 2), int)).take(pa.array([0, None]))}
    )
    for tables in (made, [*made, with_null]):
        rows = [row for table in batcher.shuffled_batches(tables, 8, 20, 1) for row in batch.rows(table)]
        assert len(rows) == sum(table.num_rows for table in tables)
        assert all(row["t"].tolist() == [row["x"]] * 2 for row in rows if row["x"] < 70)


def test_the_last_batch_can_be_dropped() -> None:
    got = list(batcher.shuffled_batches([pa.table({"x": np.arange(10)})], 4, 3, seed=1, drop_last=True))
    assert [table.num_rows for table in got] == [4, 4]
