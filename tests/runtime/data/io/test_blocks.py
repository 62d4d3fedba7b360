"""The size of blocks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from runtime.data._block import batch
from runtime.data.io.blocks import sized


def ids(start: int, count: int) -> pa.Table:
    return pa.table({"id": np.arange(start, start + count)})


def test_small_tables_are_joined_and_the_first_block_comes_soon():
    found = [block.num_rows for block in sized((ids(i, 1_000) for i in range(2_000)), 4 << 20)]
    assert sum(found) == 2_000_000
    assert found[:3] == [132_000, 263_000, 524_000]
    assert all(
        block.num_rows * 8 <= 4 << 20 for block in sized((ids(i, 1_000) for i in range(2_000)), 4 << 20)
    )


def test_large_tables_are_cut():
    found = list(sized([ids(0, 1_000)], 800))
    assert [block.num_rows for block in found] == [100] * 10
    assert pa.concat_tables(found) == ids(0, 1_000)


def test_a_row_is_never_cut():
    assert [block.num_rows for block in sized([pa.table({"a": ["x" * 100, "y" * 100]})], 10)] == [1, 1]


def test_other_columns_start_a_block():
    found = list(sized([ids(0, 1), pa.table({"a": [1]}), pa.table({"a": [2]})], 1 << 20))
    assert [block.num_rows for block in found] == [1, 2]


def test_tensors_of_several_shapes_are_joined():
    images = [batch.from_batch({"image": np.full((1, side, side), side)}) for side in (2, 3)]
    (block,) = sized(images, 1 << 20)
    assert [image.shape for image in batch.to_batch(block)["image"]] == [(2, 2), (3, 3)]


def test_reading_stops_at_the_limit():
    def tables():
        yield ids(0, 3)
        yield ids(3, 3)
        raise AssertionError("read on")

    assert [block["id"].to_pylist() for block in sized(tables(), 1 << 20, rows=4)] == [[0, 1, 2, 3]]


def test_an_empty_table_comes_only_alone():
    assert [block.num_rows for block in sized([ids(0, 0), ids(0, 0)], 1)] == [0]
    assert [block.num_rows for block in sized([ids(0, 0), ids(0, 2)], 100)] == [2]
    assert list(sized([], 1)) == []
