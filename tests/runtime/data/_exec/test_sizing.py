"""How many parts and objects an exchange has."""

from __future__ import annotations

import pyarrow as pa
import pytest

from runtime.data._exec import sizing
from runtime.data._exec.compiling import _known_bytes
from runtime.data._exec.exchange import InObjects
from runtime.data._exec.ranges import SortedRuns
from runtime.data._exec.steps import Ready
from runtime.data._plan.rules import fused, optimize
from runtime.data.dataset import Dataset
from runtime.data.read_api import range as data_range

MIB = sizing.MIB
FACTS = sizing.Facts(2.0, 90 * MIB)


@pytest.mark.parametrize(
    ("size_bytes", "objects"),
    [(30 * MIB, 1), (31 * MIB, 64), (None, 64)],
    ids=["fits", "too large", "unknown"],
)
def test_maps_write_several_objects_when_memory_may_not_do(size_bytes: int | None, objects: int) -> None:
    assert sizing.map_objects(FACTS, size_bytes, 64) == objects


@pytest.mark.parametrize(
    ("size_bytes", "most", "pieces"),
    [(0, 8, 1), (MIB // 4 - 1, 8, 1), (MIB, 8, 4), (MIB, 3, 3), (100 * MIB, 128, 128)],
)
def test_pieces_are_not_too_small(size_bytes: int, most: int, pieces: int) -> None:
    assert sizing.pieces(size_bytes, most) == pieces


def test_partitions_follow_bytes_and_cores() -> None:
    assert sizing.partitions(FACTS, 0, MIB) == 8
    assert sizing.partitions(FACTS, 20 * MIB, MIB) == 40
    assert sizing.partitions(FACTS, None, MIB) == sizing.UNKNOWN_PARTITIONS
    assert sizing.partitions(FACTS, 20 * MIB, MIB, blocks=7) == 42
    assert sizing.partitions(FACTS, 2**50, MIB) == 1024


def known(dataset: Dataset) -> int | None:
    return _known_bytes(fused(optimize(dataset._node)))


def test_what_functions_make_may_be_of_any_size() -> None:
    assert known(data_range(1000)) == 8000
    assert known(data_range(1000).rename_columns({"id": "n"})) == 8000
    assert known(data_range(1000).map(lambda row: row)) is None
    assert known(data_range(1000).map_batches(lambda batch: batch)) is None


def test_small_blocks_stay_whole() -> None:
    table = pa.table({"id": list(range(1000))})
    offsets = list(range(0, 1001, 100))
    assert len([*InObjects(10)(Ready(table, {"offsets": offsets}))]) == 1
    assert len([*SortedRuns([("id", False)], 10, 10)(table, (0,))]) == 1


def test_large_blocks_are_cut() -> None:
    rows = 4 * sizing.LEAST_PIECE // 8
    table = pa.table({"id": list(range(rows))})
    cut = [*InObjects(10)(Ready(table, {"offsets": [rows * part // 10 for part in range(11)]}))]
    assert sum(ready.table.num_rows for ready in cut) == rows
    assert len(cut) == 4
    runs = [*SortedRuns([("id", False)], 10, 10)(table, (0,))]
    assert [ready.table.num_rows for ready in runs] == [rows // 4] * 4
