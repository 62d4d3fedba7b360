"""Errors of the user's code: its frame comes first, and notes name the function, the rows and the operator."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from runtime.data.aggregate import AggregateFn
from runtime.data.dataset import Dataset
from runtime.data.datasource import BlockMetadata, Datasink, Datasource, ReadTask
from runtime.data.datatype import DataType
from runtime.data.expressions import col, udf
from runtime.data.read_api import range as numbers_below
from runtime.data.read_api import read_datasource

pytestmark = pytest.mark.usefixtures("session")


def poisoned(_: Any) -> Any:
    raise ArithmeticError("poisoned")


def third(row: Any) -> Any:
    return poisoned(row) if row["id"] == 3 else row


async def waits(batch: Any) -> Any:
    return poisoned(batch)


class Made:
    def __init__(self) -> None:
        poisoned(self)

    def __call__(self, batch: Any) -> Any:
        return batch


class Called:
    def __call__(self, batch: Any) -> Any:
        return poisoned(batch)


class Source(Datasource):
    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: Any = None, data_context: Any = None
    ) -> Any:
        return [ReadTask(lambda: poisoned(None), BlockMetadata(1, 8))]


class Sink(Datasink[None]):
    def write(self, blocks: Any, ctx: Any) -> None:
        poisoned(blocks)


def summed(data: Dataset) -> Dataset:
    fails = AggregateFn(lambda _: 0, lambda a, b: a + b, "total", accumulate_row=lambda _, row: poisoned(row))
    return data.groupby("id").aggregate(fails)  # type: ignore[no-any-return]


CASES: dict[str, tuple[Callable[[Dataset], Any], str]] = {
    "map": (
        lambda data: data.map(third),
        r"in third\n.*\nIn map\(third\), at row 3 of its block: {'id': 3}\nIn the operator ReadRange->map\(third\)\.",
    ),
    "flat_map": (
        lambda data: data.flat_map(lambda row: [third(row)]),
        r"In flat_map\(<lambda>\), at row 3 of its block",
    ),
    "filter": (lambda data: data.filter(third), r"In filter\(third\), at row 3 of its block"),
    "map_batches": (
        lambda data: data.map_batches(poisoned),
        r"In map_batches\(poisoned\), in a batch of 10 rows that begins at row 0 of its task\.",
    ),
    "async": (
        lambda data: data.map_batches(waits),
        r"in waits\n.*\nIn map_batches\(waits\), in a batch of 10 rows\.",
    ),
    "constructor": (
        lambda data: data.map_batches(Made, concurrency=1),
        r"in __init__\n.*\nIn the constructor of map_batches\(Made\)\.\nIn the operator map_batches\(Made\)\.",
    ),
    "method": (
        lambda data: data.map_batches(Called, concurrency=1),
        r"in __call__\n.*\nIn map_batches\(Called\)",
    ),
    "group": (
        lambda data: data.groupby("id").map_groups(poisoned),
        r"In map_groups\(poisoned\), in the group {'id': \d} of 1 rows\.\nIn the operator MapGroups\[id\]\.",
    ),
    "aggregation": (summed, r"In the operator ReadRange->Aggregate\[id: total\]: split\."),
    "expression": (
        lambda data: data.with_column("x", udf(DataType.int64())(poisoned)(col("id"))),
        r"In With\[x=poisoned\(col\('id'\)\)\], of 10 rows with the schema id: int64\.",
    ),
    "read": (lambda _: read_datasource(Source()), r"In the operator ReadSource\."),
}


@pytest.mark.parametrize("name", CASES)
def test_the_users_frame_comes_first_and_notes_say_where(name: str) -> None:
    make, told = CASES[name]
    with pytest.raises(ArithmeticError) as caught:
        make(numbers_below(10, override_num_blocks=1)).take_all()
    check(caught.value, told)


def test_of_a_sink() -> None:
    with pytest.raises(ArithmeticError) as caught:
        numbers_below(10, override_num_blocks=1).write_datasink(Sink())
    check(caught.value, r"in write\n.*\nIn the operator ReadRange->WriteSink\.")


def check(error: BaseException, told: str) -> None:
    """What the driver prints ends with the remote traceback, which begins with a frame of this file."""
    text = "".join(traceback.format_exception(error))
    remote = text[text.index("ray::") :]
    frames = re.findall(r'File "(.*)", line', remote)
    assert frames
    assert {*frames} == {__file__}
    assert remote.count("ArithmeticError: poisoned") == 1
    assert remote.count("In the operator") == 1
    assert re.search(told, remote, re.DOTALL), remote
