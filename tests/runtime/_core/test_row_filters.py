"""Which rows of a listing leave a process."""

from __future__ import annotations

from typing import Any

from runtime._core.row_filters import chosen


def rows(count: int) -> list[dict[str, Any]]:
    return [{"task_id": f"T{number}", "name": "f" if number % 2 else "g"} for number in range(count)]


def test_no_more_rows_than_asked_for() -> None:
    assert chosen(rows(10), [], 3) == rows(3)
    assert chosen(rows(10), [], 0) == rows(10)


def test_the_limit_counts_what_passes() -> None:
    found = chosen(rows(10), [("name", "=", "F")], 2)
    assert [row["task_id"] for row in found] == ["T1", "T3"]
    assert len(chosen(rows(10), [("name", "!=", "f")], 0)) == 5


def test_what_runs_completes_other_rows_and_does_not_count() -> None:
    running: list[dict[str, Any]] = [{"task_id": "T0", "running": True}, {"task_id": "T1", "running": True}]
    assert chosen([*rows(4), *running], [("name", "=", "g")], 1) == [*rows(1), *running]
