"""Partitions hold each row once; equal keys are together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from runtime.data._block import batch, partition, tensor


def table_of(seed: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 20, rows)
    return pa.table(
        {
            "k": pa.array(keys, mask=rng.random(rows) < 0.1),
            "s": pa.array([f"key {key}" for key in rng.integers(0, 5, rows)]),
            "t": tensor.from_numpy(rng.random((rows, 2))),
            "row": np.arange(rows),
        }
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_partitions", [1, 2, 7, 300])
@pytest.mark.parametrize("keys", [["k"], ["s"], ["k", "s"], ["t"]])
def test_equal_keys_are_together(seed: int, num_partitions: int, keys: list[str]) -> None:
    table = table_of(seed, 200)
    parts, offsets = partition.hash_partition(table, keys, num_partitions)
    assert len(offsets) == num_partitions + 1
    assert (offsets[0], offsets[-1]) == (0, 200)
    assert sorted(parts["row"].to_pylist()) == list(range(200))
    found: dict[str, int] = {}
    for index in range(num_partitions):
        piece = partition.piece(parts, offsets, index)
        rows = piece["row"].to_pylist()
        assert rows == sorted(rows)
        for key in zip(*(piece[name].to_pylist() for name in keys), strict=True):
            assert found.setdefault(repr(key), index) == index


def test_rows_keep_their_values() -> None:
    table = table_of(1, 100)
    parts, _ = partition.hash_partition(table.slice(10, 80), ["k"], 4)
    back = parts.take(pa.array(np.argsort(parts["row"].to_numpy())))
    assert list(map(str, batch.rows(back))) == list(map(str, batch.rows(table.slice(10, 80))))


def test_partitions_are_about_even() -> None:
    table = pa.table({"k": np.arange(100_000)})
    _, offsets = partition.hash_partition(table, ["k"], 16)
    assert np.diff(offsets).min() > 5800


def test_an_empty_block() -> None:
    empty = pa.table({"k": pa.array([], pa.int64())})
    assert partition.hash_partition(empty, ["k"], 3)[1].tolist() == [0, 0, 0, 0]
    assert partition.random_partition(empty, 3, np.random.default_rng(1))[1].tolist() == [0, 0, 0, 0]
    assert partition.even_partition(empty, 3)[1].tolist() == [0, 0, 0, 0]


def test_random_partitions() -> None:
    table = pa.table({"row": np.arange(10_000)})
    parts, offsets = partition.random_partition(table, 4, np.random.default_rng(3))
    assert sorted(parts["row"].to_pylist()) == list(range(10_000))
    assert parts["row"].to_pylist() != list(range(10_000))
    assert np.diff(offsets).min() > 2300
    again, _ = partition.random_partition(table, 4, np.random.default_rng(3))
    assert again.equals(parts)


def test_even_partitions_take_turns_with_the_larger_share() -> None:
    table = pa.table({"row": np.arange(10)})
    assert np.diff(partition.even_partition(table, 4)[1]).tolist() == [3, 3, 2, 2]
    assert np.diff(partition.even_partition(table, 4, first=3)[1]).tolist() == [3, 2, 2, 3]


def test_blocks_without_columns_keep_their_rows() -> None:
    table = batch.empty_columns(10)
    parts, offsets = partition.random_partition(table, 3, np.random.default_rng(1))
    assert sum(partition.piece(parts, offsets, index).num_rows for index in range(3)) == 10
