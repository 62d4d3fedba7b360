"""Where an epoch was left, and where the next pass begins."""

from __future__ import annotations

import pyarrow as pa
import pytest

from runtime.data._iteration.position import Position, without_first


def test_epochs_follow_each_other() -> None:
    position = Position()
    assert position.begin(7) == Position(0, 0, 7)
    position.advance(0, 10)
    assert position.state_dict() == {"epoch": 0, "rows": 10, "seed": 7}
    position.end(0)
    assert position.state_dict() == {"epoch": 1, "rows": 0, "seed": None}
    position.begin(7)
    position.advance(1, 10)
    assert position.begin(7).epoch == 2  # the pass before it was left early
    position.advance(1, 10)  # by a pass that nobody counts any more
    assert position.rows == 0


def test_a_state_is_where_the_next_pass_begins_and_no_later_one() -> None:
    position = Position.of({"epoch": 3, "rows": 20, "seed": 9})
    start = position.begin(None)
    assert (start.epoch, start.rows, start.seed) == (3, 20, 9)
    position.advance(3, 5)
    assert position.state_dict() == {"epoch": 3, "rows": 25, "seed": 9}
    position.end(3)
    start = position.begin(None)
    assert (start.epoch, start.rows) == (4, 0)
    assert start.seed is not None


def test_what_is_no_state() -> None:
    for wrong in ({}, {"epoch": 1}, {"epoch": "x", "rows": 1, "seed": None}, None):
        with pytest.raises(ValueError, match="load_state_dict"):
            Position.of(wrong)  # type: ignore[arg-type]


def test_tables_without_their_first_rows() -> None:
    tables = [pa.table({"x": [0, 1]}), pa.table({"x": [2, 3]}), pa.table({"x": [4]})]
    for rows in range(6):
        left = [x for table in without_first(iter(tables), rows) for x in table["x"].to_pylist()]
        assert left == list(range(rows, 5))
