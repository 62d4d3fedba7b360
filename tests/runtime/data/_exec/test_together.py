"""Small blocks that are put together for functions of batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from runtime._controllers.controller import Begin, Done, Item, Submit
from runtime.data._exec.bundles import Bundle, Work
from runtime.data._exec.compiling import _batch_rows
from runtime.data._exec.operators import NEVER, ForOneFile, Given, Sink, Stage, TaskSpec, Together
from runtime.data._exec.state import Execution, Limits
from runtime.data._plan import nodes
from runtime.data._plan.rules import fused, optimize
from runtime.data.dataset import Dataset
from runtime.data.from_api import from_arrow
from tests.under_test import ray


def sizes(batch: dict[str, Any]) -> dict[str, Any]:
    return {"rows": [len(batch["id"])]}


class Sizes:
    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"], "rows": np.full(len(batch["id"]), len(batch["id"]))}


def six_blocks() -> Dataset:
    return from_arrow([pa.table({"id": range(10 * i, 10 * i + 10)}) for i in range(6)])


def test_small_blocks_make_whole_batches(session: Any) -> None:
    assert six_blocks().map_batches(sizes, batch_size=20).take_all() == [{"rows": 20}] * 3
    after_rows = six_blocks().map(lambda row: row).map_batches(sizes, batch_size=25).take_all()
    assert [row["rows"] for row in after_rows] == [25, 5, 25, 5]
    read = ray.data.range(60, override_num_blocks=6).map_batches(sizes, batch_size=30).take_all()
    assert read == [{"rows": 30}] * 2
    assert six_blocks().map_batches(sizes).take_all() == [{"rows": 10}] * 6


def test_small_blocks_make_whole_batches_for_actors_in_order(session: Any) -> None:
    rows = six_blocks().map_batches(Sizes, batch_size=40, concurrency=1).take_all()
    assert [row["id"] for row in rows] == list(range(60))
    assert [row["rows"] for row in rows] == [40] * 40 + [20] * 20


def bundle(number: int, rows: int, size_bytes: int) -> Bundle:
    return Bundle(number, "block", rows, size_bytes, (number,))


def test_rows_or_bytes_are_enough() -> None:
    together = Together("together", Given("given", ()), 20, 1000)
    together.gathered.append(bundle(0, 10, 10))
    assert not together.is_full
    together.gathered.append(bundle(1, 10, 10))
    assert together.is_full
    together.gathered = [bundle(0, 1, 999)]
    assert not together.is_full
    together.gathered.append(bundle(1, 1, 1))
    assert together.is_full


@pytest.mark.parametrize(
    ("rows", "size_bytes", "expected"),
    [
        (30, 0, [30, 30, 30, 10]),
        (1, 0, [10] * 10),
        (0, 250, [40, 40, 20]),
        (20, 250, [40, 40, 20]),
        (999, 0, [100]),
    ],
)
def test_files_are_written_as_soon_as_their_rows_are_there(
    rows: int, size_bytes: int, expected: list[int]
) -> None:
    """Their blocks do not count against the budget."""
    source = Stage("read", [], TaskSpec("read"), seeds=[Work((0,))])
    files = Stage("write", [ForOneFile("for one file", source, rows, size_bytes)], TaskSpec("write"))
    execution = Execution(lambda: Sink(files, is_ordered=True), Limits(1 << 30, 100))
    execution.step(Begin(), 0.0)
    (read,) = source.running
    found: list[int] = []
    for index in range(10):
        effects = execution.step(Item(read, index, 80, (), {"rows": 10, "bytes": 80}), 1.0)
        found += [sum(rows for _, rows in each.args[1]) for each in effects if isinstance(each, Submit)]
        assert sum(found) <= 10 * (index + 1)
        assert execution.ledger.held_bytes == 0
    assert sum(found) > 100 - 2 * max(expected) or len(expected) == 1
    ended = execution.step(Done(read), 2.0)
    found += [sum(rows for _, rows in each.args[1]) for each in ended if isinstance(each, Submit)]
    assert found == expected


def test_the_floor_is_what_was_gathered() -> None:
    source = Given("given", ())
    together = Together("together", source, 20, 1000)
    assert together.floor() == ()
    source.is_finished = True
    assert together.floor() == NEVER
    together.waiting.push(bundle(5, 1, 1))
    assert together.floor() == (5,)
    together.gathered.append(bundle(3, 1, 1))
    assert together.floor() == (3,)


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (lambda ds: ds.map_batches(sizes, batch_size=7), 7),
        (lambda ds: ds.map_batches(sizes), 0),
        (
            lambda ds: (
                ds.map(lambda row: row).map_batches(sizes, batch_size=7).map_batches(sizes, batch_size=9)
            ),
            7,
        ),
        (lambda ds: ds.filter(lambda row: True).map_batches(sizes, batch_size=7), 0),
        (lambda ds: ds.map(lambda row: row), 0),
    ],
)
def test_rows_of_the_first_function_of_batches(make: Any, rows: int) -> None:
    chain = fused(optimize(make(six_blocks())._node))
    assert isinstance(chain, nodes.Chain)
    assert _batch_rows(chain.steps.nodes) == rows
