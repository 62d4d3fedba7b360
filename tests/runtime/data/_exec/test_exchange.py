"""Exchanges by partition, from maps to reducers, in this process: on skewed keys, compared with pandas."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from runtime.data._exec import exchange
from runtime.data._exec.bundles import Bundle, Work
from runtime.data._exec.steps import Attempt
from runtime.data._plan import nodes
from runtime.data.aggregate import Count, Max, Quantile, Sum
from runtime.data.context import DataContext

HOW = {"inner": "inner", "left_outer": "left", "right_outer": "right", "full_outer": "outer"}


def run(
    node: nodes.Node, inputs: Sequence[Sequence[pa.Table]], target_bytes: int, objects: int = 1
) -> tuple[list[pa.Table], list[Work]]:
    """What each reducer makes of these blocks, and their work."""
    kind = exchange.of(node, DataContext())
    sides: list[list[Bundle]] = []
    for side, blocks in enumerate(inputs):
        finish = kind.maps[side](kind.parts or 8, objects)
        readies = [ready for number, block in enumerate(blocks) for ready in finish(block, (number, 0))]
        sides.append(
            [
                Bundle(
                    (side, number), each.table, each.table.num_rows, each.table.nbytes, metadata=each.metadata
                )
                for number, each in enumerate(readies)
            ]
        )
    works = list(kind.plan(target_bytes)(sides))
    results = []
    for work in works:
        tables = (bundle.source.slice(bundle.start, bundle.rows) for bundle in work.inputs)
        results.append(pa.concat_tables(kind.reduce(tables, Attempt(work.order, work.args))))
    return results, works


def skewed(rng: np.random.Generator, rows: int, name: str) -> pa.Table:
    """Half of the rows have one key."""
    keys = np.where(rng.random(rows) < 0.5, 7, rng.integers(0, 50, rows))
    return pa.table({"k": keys, name: rng.integers(0, 1000, rows)})


def in_blocks(table: pa.Table, blocks: int) -> list[pa.Table]:
    borders = [table.num_rows * number // blocks for number in range(blocks + 1)]
    return [table.slice(low, high - low) for low, high in itertools.pairwise(borders)]


def frame(table: pa.Table) -> pd.DataFrame:
    made = table.to_pandas().astype("float64")
    return made.sort_values(list(made.columns), ignore_index=True)


def bytes_of(work: Work) -> int:
    return sum(bundle.size_bytes for bundle in work.inputs)


@pytest.mark.parametrize("how", exchange.DIVISIBLE)
@pytest.mark.parametrize("seed", range(4))
def test_joins_of_skewed_keys(how: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    left = skewed(rng, int(rng.integers(1, 400)), "a")
    right = skewed(rng, int(rng.integers(1, 400)), "b")
    node = nodes.Join(nodes.Node(), nodes.Node(), ("k",), ("k",), how, None, None, rng.choice([None, 3]))
    inputs = [in_blocks(left, 3), in_blocks(right, 2)]
    results, _ = run(
        node, inputs, target_bytes=int(rng.choice([100, 1000, 100_000])), objects=int(rng.choice([1, 4]))
    )
    done = pa.concat_tables(results, promote_options="default")
    if how in HOW:
        expected = left.to_pandas().merge(right.to_pandas(), on="k", how=HOW[how])  # type: ignore[call-overload]
    else:
        one, other = (left, right) if how.startswith("left") else (right, left)
        matches = one.to_pandas()["k"].isin(other["k"].to_pylist())
        expected = one.to_pandas()[matches if how.endswith("semi") else ~matches]
    pd.testing.assert_frame_equal(frame(done), frame(pa.Table.from_pandas(expected, preserve_index=False)))


@pytest.mark.parametrize("blocks", [None, 2])
def test_a_hot_key_of_a_join_is_divided_among_reducers(blocks: int | None) -> None:
    left = pa.table({"k": np.where(np.arange(20_000) % 10, 7, np.arange(20_000)), "a": np.arange(20_000)})
    right = pa.table({"k": np.arange(100), "b": np.arange(100)})
    node = nodes.Join(nodes.Node(), nodes.Node(), ("k",), ("k",), "inner", None, None, blocks)
    results, works = run(node, [in_blocks(left, 4), [right]], target_bytes=left.nbytes // 8)
    assert sum(result.num_rows for result in results) == 18_000 + 10
    assert max(map(bytes_of, works)) <= exchange.MOST_TARGETS * left.nbytes // 8
    assert len(works) >= 8
    outer = nodes.Join(nodes.Node(), nodes.Node(), ("k",), ("k",), "full_outer", None, None, blocks)
    results, _ = run(outer, [in_blocks(left, 4), [right]], target_bytes=left.nbytes // 8)
    assert sum(result.num_rows for result in results) == 20_000 + 89


@pytest.mark.parametrize("seed", range(4))
def test_aggregations_of_skewed_keys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = skewed(rng, 1000, "v")
    aggs = (Count(), Sum("v"), Max("v"), Quantile("v", q=0.5))
    results, works = run(nodes.Aggregate(nodes.Node(), ("k",), aggs), [in_blocks(table, 5)], 1000, objects=3)
    groups = table.to_pandas().groupby("k")["v"]
    expected = pd.DataFrame(
        {
            "count()": groups.count(),
            "sum(v)": groups.sum(),
            "max(v)": groups.max(),
            "quantile(v)": groups.median(),
        }
    ).reset_index()
    done = frame(pa.concat_tables(results))
    pd.testing.assert_frame_equal(done, expected.astype("float64"), check_names=False)
    assert len(works) > 1


def test_map_groups_gets_a_hot_group_as_one() -> None:
    table = skewed(np.random.default_rng(1), 1000, "v")
    seen: list[Any] = []

    def count(group: Any) -> Any:
        seen.append(group["k"][0])
        return {"k": group["k"][:1], "n": [len(group["v"])]}

    udf = nodes.Udf("map_batches", count, batch_format="numpy")
    node = nodes.MapGroups(nodes.Node(), ("k",), udf)
    results, _ = run(node, [in_blocks(table, 4)], target_bytes=500, objects=2)
    assert len(seen) == len(set(seen))
    expected = table.to_pandas().groupby("k").size()
    done = pa.concat_tables(results)
    assert dict(zip(done["k"].to_pylist(), done["n"].to_pylist(), strict=True)) == expected.to_dict()


def test_a_task_that_runs_again_shuffles_alike_and_blocks_of_one_size_do_not() -> None:
    blocks = [pa.table({"id": np.arange(100)}) for _ in range(2)]
    kind = exchange.of(nodes.Shuffle(nodes.Node(), None, None), DataContext())
    finish = kind.maps[0](4, 1)
    first, second = (
        [next(finish(block, (number, 0))) for number, block in enumerate(blocks)] for _ in range(2)
    )
    assert [each.table for each in first] == [each.table for each in second]
    assert first[0].table != first[1].table
