"""What the workloads of data.py do with batches and rows, for an engine and for its anchors alike, and their checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from data_input import MIB
from data_measuring import Check, require

SIDE = 256
"""A tensor is SIDE x SIDE float32: 256 KiB."""
SLOW_S = 0.02
"""What the slow consumer takes for a block."""
SLOW_BLOCK = 8 * MIB
Batch = Mapping[str, Any]


def square(row: dict[str, int]) -> dict[str, int]:
    return {"id": row["id"], "square": row["id"] ** 2}


def triple(row: dict[str, int]) -> list[dict[str, int]]:
    return [{"id": row["id"], "n": n} for n in range(3)]


def even(row: dict[str, int]) -> bool:
    return row["id"] % 2 == 0


def rows_of(count: int) -> dict[str, tuple[str, int, int]]:
    """For each function of rows: the column to sum up, the sum, and the number of rows that count."""
    return {
        "map of rows": ("square", sum(n * n for n in range(count)), count),
        "flat_map of rows": ("n", 3 * count, 3 * count),
        "filter of rows by a function": ("id", sum(range(0, count, 2)), count),
    }


def sum_of(column: str, batches: Iterable[Batch]) -> int:
    return sum(int(batch[column].sum()) for batch in batches)


def sums_of_keys(table: pa.Table) -> Check:
    """The check of a table with a key and the sum of its values, whatever its columns are called."""
    keys = np.asarray(table["k"])
    expected = np.bincount(keys, weights=np.asarray(table["v"]))
    groups = len(np.unique(keys))

    def check(found: pa.Table) -> None:
        got, sums = np.asarray(found.column(0)), np.asarray(found.column(1))
        require(len(got) == len(np.unique(got)) == groups, f"{len(got)} groups in place of {groups}")
        require((expected[got] == sums).all(), "wrong sums")

    return check


def epoch_of(batches: Iterable[Any]) -> tuple[int, float]:
    """Rows, and the sum of the first column."""
    rows, total = 0, 0.0
    for batch in batches:
        rows += len(batch)
        total += float(batch[:, 0].sum())
    return rows, total


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def characters(texts: Iterable[str]) -> int:
    return sum(map(len, texts))


def light_of(images: Any) -> int:
    """The sum of all values of all pixels."""
    return int(np.asarray(images).sum(dtype=np.int64))


def light_of_batch(batch: Batch) -> Batch:
    return {"light": np.array([light_of(batch["image"])])}


def light_of_file(path: Path) -> int:
    from PIL import Image

    with Image.open(path) as image:
        return light_of(image)


def make_tensors(batch: Batch) -> Batch:
    ids = batch["id"]
    return {"id": ids, "x": np.repeat(ids.astype(np.float32), SIDE * SIDE).reshape(len(ids), SIDE, SIDE)}


def scale(batch: Batch) -> Batch:
    return {"id": batch["id"], "x": batch["x"] * 2}


def shift(batch: Batch) -> Batch:
    return {"id": batch["id"], "x": batch["x"] + 1}


class Model:
    """Undoes `shift`."""

    def __init__(self) -> None:
        self.bias = np.float32(1)

    def __call__(self, batch: Batch) -> Batch:
        return {"id": batch["id"], "x": batch["x"] - self.bias}


def consume_tensors(batches: Iterable[Batch]) -> tuple[int, int]:
    """Rows, and the sum of their ids."""
    rows, ids = 0, 0
    for batch in batches:
        twice = batch["id"] * 2
        for row, column in ((0, -1), (-1, 3)):
            require((batch["x"][:, row, column] == twice).all(), "wrong tensors")
        rows += len(batch["id"])
        ids += int(batch["id"].sum())
    return rows, ids


def large_blocks(batch: Batch) -> Iterator[Batch]:
    for n in batch["id"]:
        yield {"id": np.array([n]), "x": np.full((1, SLOW_BLOCK), n % 256, np.uint8)}


def consume_slowly(batches: Iterable[Batch]) -> list[int]:
    """The ids, in order."""
    ids = []
    for batch in batches:
        time.sleep(SLOW_S)
        require((batch["x"][0, ::MIB] == batch["id"][0] % 256).all(), "a wrong block")
        ids.append(int(batch["id"][0]))
    return sorted(ids)


def consume_keys(tables: Iterable[Any]) -> tuple[int, int, bool, float]:
    """Rows, the sum of keys, whether they are in order, and the share of neighbours that are."""
    rows, total, last, ordered, rising = 0, 0, -1, True, 0
    for table in tables:
        keys = np.asarray(table["key"])
        if len(keys):
            require(len(table["payload"]) == len(keys), "no payload")
            up = int((keys[1:] >= keys[:-1]).sum())
            rising += up
            ordered = ordered and up == len(keys) - 1 and keys[0] >= last
            last, rows, total = keys[-1], rows + len(keys), total + int(keys.sum(dtype=np.uint64))
    return rows, total % 2**64, ordered, rising / max(1, rows)


def keys_in(records: Path, in_order: bool) -> Check:
    """The check of all records, sorted or shuffled."""
    keys = np.asarray(pq.read_table(records, columns=["key"])["key"])
    expected = len(keys), int(keys.sum(dtype=np.uint64))

    def check(found: tuple[int, int, bool, float]) -> None:
        require(found[:2] == expected, f"{found[:2]} in place of {expected}")
        require(
            found[2] if in_order else 0.4 < found[3] < 0.6, "not in order" if in_order else "not shuffled"
        )

    return check


def ids_written(rows: int) -> Callable[[Path], None]:
    """The check of a folder of Parquet files."""

    def check(folder: Path) -> None:
        table = pq.read_table(folder, columns=["id"])
        require(table.num_rows == rows, f"{table.num_rows} rows written")
        require(pc.sum(table["id"]).as_py() == rows * (rows - 1) // 2, "wrong ids written")

    return check
