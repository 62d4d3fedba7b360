"""The exchange of a sort, from maps to reducers, in this process: compared with a plain sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from runtime.data._block import sort
from runtime.data._exec import ranges
from runtime.data._exec.bundles import Bundle
from runtime.data._exec.steps import Attempt

KEYS = [("k", False)]


def bundles_of(blocks: list[pa.Table], keys: ranges.Keys, objects: int) -> list[Bundle]:
    """What the maps of these blocks make; the source of a bundle is its table."""
    made = ranges.SortedRuns(keys, parts=0, objects=objects)
    readies = [ready for number, block in enumerate(blocks) for ready in made(block, (number, 0))]
    return [
        Bundle(number, ready.table, ready.table.num_rows, ready.table.nbytes, metadata=ready.metadata)
        for number, ready in enumerate(readies)
    ]


def reduced(plan: ranges.Ranges, bundles: list[Bundle], cut_keys: int | None = None) -> list[pa.Table]:
    """What each reducer makes."""
    reduce = ranges.Merged(plan.keys, cut_keys)
    results = []
    for work in plan([bundles]):
        tables = (bundle.source.slice(bundle.start, bundle.rows) for bundle in work.inputs)
        results.append(pa.concat_tables(reduce(tables, Attempt(work.order, work.args))))
    return results


def skewed(rng: np.random.Generator, rows: int) -> pa.Array:
    """Keys of which some are hot, missing or not numbers."""
    keys = rng.zipf(1.3, rows).astype(np.float64)
    keys[rng.random(rows) < 0.1] = np.nan
    return pa.array(keys, mask=rng.random(rows) < 0.1, from_pandas=False)


@pytest.mark.parametrize("seed", range(20))
def test_is_a_sort_with_reducers_of_one_size(seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = [("k", bool(rng.integers(2))), ("s", bool(rng.integers(2)))][: rng.integers(1, 3)]
    blocks = []
    for _ in range(rng.integers(1, 6)):
        rows = int(rng.integers(0, 3000))
        text = pa.array([f"s{number}" for number in rng.integers(0, 3, rows)])
        blocks.append(pa.table({"k": skewed(rng, rows), "s": text, "row": rng.integers(0, 2**60, rows)}))
    total = sum(block.nbytes for block in blocks)
    plan = ranges.Ranges(max(1, total // int(rng.integers(1, 12))), keys)
    results = reduced(plan, bundles_of(blocks, keys, objects=int(rng.choice([1, 7]))))
    done, before = pa.concat_tables(results), pa.concat_tables(blocks)
    names = [name for name, _ in keys]
    assert str(done.select(names).to_pylist()) == str(sort.sort_table(before, keys).select(names).to_pylist())
    assert sorted(done["row"].to_pylist()) == sorted(before["row"].to_pylist())
    if before.num_rows > 500:
        assert max(result.num_rows for result in results) < 1.3 * before.num_rows / len(results) + 50


def test_one_hot_key_is_divided_among_reducers() -> None:
    blocks = [pa.table({"k": np.zeros(10_000, np.int64), "row": np.arange(10_000)}) for _ in range(4)]
    plan = ranges.Ranges(sum(block.nbytes for block in blocks) // 8, KEYS)
    results = reduced(plan, bundles_of(blocks, KEYS, objects=8))
    assert len(results) == 8
    assert max(result.num_rows for result in results) < 5100


def test_reducers_get_the_pieces_that_they_need() -> None:
    rng = np.random.default_rng(1)
    blocks = [pa.table({"k": rng.random(4000)}) for _ in range(4)]
    works = ranges.Ranges(16_000, KEYS)([bundles_of(blocks, KEYS, objects=16)])
    assert len(works) == 8
    assert (
        max(len(work.inputs) for work in works) <= 4 * 4
    )  # two pieces of each run, and the halves of two more
    in_order = [block.slice(start, 1000) for block in blocks[:1] for start in range(0, 4000, 1000)]
    sorted_before = [sort.sort_table(block, KEYS) for block in in_order]
    assert (
        sum(len(work.inputs) for work in ranges.Ranges(1 << 20, KEYS)([bundles_of(sorted_before, KEYS, 1)]))
        == 4
    )


def test_boundaries_are_before_equal_rows_and_every_block_is_there() -> None:
    blocks = [pa.table({"k": [3, 1, 2], "v": [1, 2, 3]}), pa.table({"k": [2, 2, 5], "v": [3, 1, 2]})]
    keys = [("k", False), ("v", True)]
    plan = ranges.Ranges(1, keys, (2, 3, 4, 9))
    results = reduced(plan, bundles_of(blocks, keys, objects=2), cut_keys=1)
    assert [list(zip(*each.to_pydict().values(), strict=True)) for each in results] == [
        [(1, 2)],
        [(2, 3), (2, 3), (2, 1)],
        [(3, 1)],
        [(5, 2)],
        [],
    ]
    assert results[-1].schema == blocks[0].schema


def test_blocks_whose_types_differ() -> None:
    blocks: list[Any] = [pa.table({"k": [3, 1]}), pa.table({"k": [2.5, None]}), pa.table({"k": pa.nulls(2)})]
    results = reduced(ranges.Ranges(8, KEYS), bundles_of(blocks, KEYS, objects=1))
    assert [value for each in results for value in each["k"].to_pylist()] == [1, 2.5, 3, None, None, None]


def test_times_in_nanoseconds() -> None:
    times = pa.array([5, 3, 1, None, 10**18 + 1], pa.timestamp("ns", "UTC"))
    results = reduced(ranges.Ranges(8, KEYS), bundles_of([pa.table({"k": times})], KEYS, objects=5))
    assert pa.concat_tables(results)["k"].cast(pa.int64()).to_pylist() == [1, 3, 5, 10**18 + 1, None]


def test_long_keys_make_small_metadata() -> None:
    blocks = [pa.table({"k": [str(number) * 1000 for number in range(1000)]})]
    (bundle,) = bundles_of(blocks, KEYS, objects=1)
    assert len(bundle.metadata["sample"]) <= ranges.SAMPLE_BYTES


def test_nothing_to_sort() -> None:
    assert ranges.Ranges(8, KEYS)([[]]) == []
    assert [
        table.num_rows for table in reduced(ranges.Ranges(8, KEYS), bundles_of([pa.table({})], KEYS, 1))
    ] == [0]
    empty = pa.table({"k": pa.array([], pa.int8())})
    (result,) = reduced(ranges.Ranges(8, KEYS), bundles_of([empty, pa.table({})], KEYS, 3))
    assert result.schema == empty.schema
