"""Rows of a data set by a key."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from tests.under_test import ray

pytestmark = pytest.mark.usefixtures("session")


def test_rows_are_found_by_numbers() -> None:
    made = ray.data.range(200, override_num_blocks=8).map(
        lambda row: {"k": 3 * row["id"], "v": str(row["id"])}
    )
    found = made.random_shuffle(seed=1).to_random_access_dataset("k", num_workers=2)
    assert ray.get(found.get_async(30)) == {"k": 30, "v": "10"}
    assert ray.get([found.get_async(key) for key in (-3, 31, 600)]) == [None] * 3
    assert found.multiget([597, 1, 0, 597, 700]) == [
        {"k": 597, "v": "199"},
        None,
        {"k": 0, "v": "0"},
        {"k": 597, "v": "199"},
        None,
    ]
    stats = found.stats()
    assert "- Num workers: 2" in stats
    assert re.search(r"Accesses per worker: \d+ min, \d+ max", stats)


def test_rows_are_found_by_texts_and_not_by_null() -> None:
    table = pa.table({"k": ["b", None, "a", "c", "b", None], "v": range(6)})
    found = ray.data.from_arrow(table).to_random_access_dataset("k", num_workers=1)
    assert [row and row["v"] for row in found.multiget(["a", "c", "d"])] == [2, 3, None]
    assert ray.get(found.get_async("b"))["v"] in (0, 4)


def test_no_rows_and_wrong_numbers() -> None:
    none = ray.data.range(10).filter(lambda row: False)
    assert none.to_random_access_dataset("id", num_workers=1).multiget([1]) == [None]
    with pytest.raises(ValueError, match="num_workers"):
        ray.data.range(10).to_random_access_dataset("id", num_workers=0)
