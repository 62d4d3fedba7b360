"""Blocks as the code of users sees them."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from runtime.data.block import BlockAccessor

TABLE = pa.table({"n": pa.array([3, None, 1], pa.int64()), "word": ["a", "b", "c"]})


@pytest.mark.parametrize("block", [TABLE, TABLE.to_batches()[0], TABLE.to_pandas()])
def test_formats(block):
    accessor = BlockAccessor.for_block(block)
    assert (accessor.num_rows(), accessor.schema().names) == (3, ["n", "word"])
    assert accessor.to_arrow().column("word").to_pylist() == ["a", "b", "c"]
    assert isinstance(accessor.to_pandas(), pd.DataFrame)
    assert accessor.to_numpy("word").tolist() == ["a", "b", "c"]
    assert list(accessor.to_numpy(["n"])) == ["n"]
    assert [row["word"] for row in accessor.iter_rows(public_row_format=True)] == ["a", "b", "c"]
    assert accessor.get_metadata().num_rows == 3


def test_parts():
    accessor = BlockAccessor.for_block(TABLE)
    assert accessor.slice(1, 3, copy=True).column("word").to_pylist() == ["b", "c"]
    assert accessor.take([2, 0]).column("n").to_pylist() == [1, 3]
    assert accessor.select(["word"]).column_names == ["word"]
    assert BlockAccessor.batch_to_block({"n": [1, 2]}) == pa.table({"n": [1, 2]})


def test_aggregates_with_and_without_nulls():
    accessor = BlockAccessor.for_block(TABLE)
    assert (accessor.count("n"), accessor.count("n", ignore_nulls=True)) == (3, 2)
    assert [getattr(accessor, name)("n", ignore_nulls=True) for name in ("sum", "min", "max", "mean")] == [
        4,
        1,
        3,
        2.0,
    ]
    assert accessor.sum("n", ignore_nulls=False) is None
