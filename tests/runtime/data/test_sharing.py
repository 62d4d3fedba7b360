"""A data set that a plan uses twice runs once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runtime.data.read_api import range as numbers_below

pytestmark = pytest.mark.usefixtures("session")


def test_functions_run_once_for_all_readers(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def logged(batch: Any) -> Any:
        with open(log, "a") as file:
            file.write(f"{len(batch['id'])}\n")
        return batch

    def calls() -> int:
        rows = sum(map(int, log.read_text().split()))
        log.unlink()
        return rows

    data = numbers_below(200, override_num_blocks=4).map_batches(logged)
    doubled = data.map(lambda row: {"id": row["id"], "double": 2 * row["id"]})
    joined = data.join(doubled, "inner", on=["id"]).take_all()
    assert sorted((row["id"], row["double"]) for row in joined) == [(n, 2 * n) for n in range(200)]
    assert calls() == 200
    both = data.union(doubled).union(data.limit(5)).take_all()
    assert [row["id"] for row in both] == [*range(200), *range(200), *range(5)]
    assert calls() == 200


def test_joins_of_few_rows_run_in_this_process_after_functions() -> None:
    left = numbers_below(100, override_num_blocks=4).map(lambda row: {"id": row["id"], "a": 2 * row["id"]})
    right = numbers_below(20).map(lambda row: {"id": row["id"] + 90})
    both = left.join(right, "inner", on=["id"]).sort("id")
    assert both.take_all() == [{"id": n, "a": 2 * n} for n in range(90, 100)]
    summary = both.stats()
    assert summary.count("map(<lambda>): 4 tasks, 4 blocks, 100 rows") == 1
    assert "In this process, without tasks:\nSort[id]\n+- Join[inner on id]\n   +- Given" in summary
