"""Steps of tasks: expressions know which rows of which task they are evaluated on."""

from __future__ import annotations

import itertools
from collections import UserDict
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from runtime.data._exec.steps import ROWS_AT_A_TIME, Attempt, UdfStep, file_number, step_of, task_number
from runtime.data._plan import nodes
from runtime.data.expressions import col, lit, monotonically_increasing_id, random

SOURCE = nodes.Given(())


def tables() -> list[pa.Table]:
    return [pa.table({"x": [1, 2]}), pa.table({"x": pa.array([], pa.int64())}), pa.table({"x": [3]})]


def test_rows_of_all_tasks_have_numbers_of_their_own() -> None:
    step = step_of(
        nodes.Project(SOURCE, (("n", monotonically_increasing_id()), ("r", random(seed=1)), ("one", lit(1))))
    )
    made = [
        row
        for order in ((0,), (1,), (1, 2))
        for table in step(iter(tables()), Attempt(order))
        for row in table.to_pylist()
    ]
    assert [row["n"] for row in made[:3]] == [0, 1, 2]
    assert len({row["n"] for row in made}) == len({row["r"] for row in made}) == 9
    assert all(row["one"] == 1 for row in made)


def test_a_step_repeats_what_it_did_for_a_task() -> None:
    step = step_of(nodes.Project(SOURCE, (("r", random(seed=1)),), keeps_others=True))
    once, again = ([table.to_pydict() for table in step(iter(tables()), Attempt((4, 0)))] for _ in range(2))
    assert once == again


def test_a_task_that_runs_again_chooses_the_same_rows() -> None:
    step = step_of(nodes.Sample(nodes.Node(), 0.5, None))
    once, again = ([table.to_pydict() for table in step(iter(tables()), Attempt((4, 0)))] for _ in range(2))
    assert once == again


def test_filters_leave_out_nulls() -> None:
    step = step_of(nodes.Filter(SOURCE, col("x") > 1))
    made = list(step(iter([*tables(), pa.table({"x": pa.array([None, 5])})]), Attempt()))
    assert [table["x"].to_pylist() for table in made] == [[2], [], [3], [5]]


def test_numbers_of_tasks() -> None:
    orders = [(), (5,), (5, 0), *itertools.product(range(20), range(1, 20))]
    numbers = [task_number(order) for order in orders]
    assert numbers[:3] == [0, 5, 5]
    assert len(set(numbers[3:])) == 380
    assert all(0 <= number < 2**30 for number in numbers)
    assert numbers[3:] == [task_number(order) for order in orders[3:]]


def test_numbers_of_files_sort_as_their_tasks_do() -> None:
    orders = [(0, 0, 0), (0, 0, 12), (0, 3), (1, 0), (2, 0, 5), (10, 0)]
    names = [f"{file_number(order):06}" for order in orders]
    assert names == sorted(names)
    assert [f"{file_number((task,)):06}" for task in (0, 12)] == ["000000", "000012"]


def outputs(kind: nodes.UdfKind, fn: Callable[[Any], Any]) -> list[Any]:
    step = UdfStep(nodes.Udf(kind, fn))
    return [table.to_pylist() for table in step(iter(tables()), Attempt())]


def test_rows_may_be_mappings_of_other_classes() -> None:
    assert outputs("map", lambda row: row if row["x"] == 1 else UserDict(row)) == [
        [{"x": 1}, {"x": 2}],
        [{"x": 3}],
    ]


def test_flat_map_takes_all_iterables() -> None:
    made = outputs("flat_map", lambda row: [row] if row["x"] == 1 else (row for _ in range(row["x"])))
    assert made == [[{"x": 1}, {"x": 2}, {"x": 2}], [{"x": 3}, {"x": 3}, {"x": 3}]]


@pytest.mark.parametrize(
    ("kind", "fn", "told"),
    [
        ("map", lambda row: row if row["x"] == 1 else 7, "must return a dict for each row, not int: 7"),
        ("flat_map", lambda row: [row, "no row"], "must return a dict for each row, not str: 'no row'"),
        ("flat_map", lambda row: row, "must return a list of rows, not dict"),
        ("flat_map", lambda row: 7, "must return a list of rows, not int"),
    ],
)
def test_what_is_no_row_is_named(kind: nodes.UdfKind, fn: Callable[[Any], Any], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        outputs(kind, fn)


def test_rows_of_a_large_block() -> None:
    count = 2 * ROWS_AT_A_TIME + 1
    table = pa.table({"x": range(count)})
    step = UdfStep(nodes.Udf("flat_map", lambda row: [row, {"y": -row["x"]}] if row["x"] % 2 else []))
    (made,) = step(iter([table]), Attempt())
    odd = range(1, count, 2)
    assert made.to_pydict() == {
        "x": [x for each in odd for x in (each, None)],
        "y": [y for each in odd for y in (None, -each)],
    }

    def fail(row: dict[str, int]) -> dict[str, int]:
        if row["x"] == count - 1:
            raise ValueError("the last one")
        return row

    with pytest.raises(ValueError, match="the last one") as caught:
        list(UdfStep(nodes.Udf("map", fail))(iter([table]), Attempt()))
    assert f"at row {count - 1} of its block" in "".join(caught.value.__notes__)
