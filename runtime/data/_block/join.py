"""Joins of two tables, by Acero's hash join on the keys and row numbers: other columns may have any type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from runtime.data._block import acero, arrays
from runtime.data._block.groups import group, normalized
from runtime.data._block.schema_diff import SchemaMismatchError, Source, common_type, concat, convert

HOW = {
    "inner": "inner",
    "left_outer": "left outer",
    "right_outer": "right outer",
    "full_outer": "full outer",
    "left_semi": "left semi",
    "right_semi": "right semi",
    "left_anti": "left anti",
    "right_anti": "right anti",
}
"""Kinds of joins, by Acero's names."""


PART_BYTES = 32 << 20
"""About how large the parts of a result are: keys that many rows of both sides have make it much larger than these."""


def parts(
    left: pa.Table,
    right: pa.Table,
    on: Sequence[str],
    how: str = "inner",
    right_on: Sequence[str] | None = None,
    left_suffix: str | None = None,
    right_suffix: str | None = None,
    threads: bool = False,
    part_bytes: int = PART_BYTES,
) -> Iterator[pa.Table]:
    """The joined rows, in at least one table.

    Rows match where their keys are equal; null keys match nothing, NaN matches NaN.
    Columns are those of the left table, then those of the right one without its keys. In right and full outer
    joins, keys of rows without a left match come from the right. Semi and anti joins have the columns of one side.

    Args:
        on: keys of the left table.
        how: a key of `HOW`.
        right_on: keys of the right table, in the same order; None for the same names.
        left_suffix, right_suffix: appended to the names of columns, except keys, that both tables have.
        threads: whether Arrow may use all cores; the order of rows is then random.
        part_bytes: about how large the tables are.

    Raises:
        ValueError: an unknown kind; keys do not pair up; columns of one name and no suffix for them.
        KeyError: a key's column is missing.
        SchemaMismatchError: types of keys do not go together.
    """
    if how not in HOW:
        raise ValueError(f"join type {how!r} is none of {', '.join(HOW)}")
    right_on = on if right_on is None else right_on
    if not on or len(on) != len(right_on):
        raise ValueError(
            f"a join needs as many keys of the right table as of the left one, not {on} and {right_on}"
        )
    left, right = _with_keys(left, on, right, right_on), _with_keys(right, right_on, left, on)
    for side, table, keys in (("left", left, on), ("right", right, right_on)):
        for key in keys:
            if key not in table.column_names:
                raise KeyError(
                    f"the {side} table has no column {key!r}; it has {', '.join(table.column_names)}"
                )
    rows = _matches(_keys(left, right, on, right_on), HOW[how], threads)
    if how.startswith("left_") and how != "left_outer":
        yield left.take(rows["left"])
        return
    if how.startswith("right_") and how != "right_outer":
        yield right.take(rows["right"])
        return
    suffixes = (left_suffix or "", right_suffix or "")
    row_bytes = sum(side.nbytes // max(1, side.num_rows) for side in (left, right))
    part_rows = max(1, part_bytes // max(1, row_bytes))
    for start in range(0, max(1, len(rows["left"])), part_rows):
        part = {side: numbers.slice(start, part_rows) for side, numbers in rows.items()}
        yield _assemble(left, right, on, right_on, part, how, suffixes)


def _with_keys(table: pa.Table, keys: Sequence[str], other: pa.Table, other_keys: Sequence[str]) -> pa.Table:
    """The table; one without rows of which no columns are known gets its keys, with the other table's types."""
    if table.num_columns:
        return table
    known = {name: other.schema.field(name).type for name in other_keys if name in other.column_names}
    kinds = [known.get(name, pa.null()) for name in other_keys]
    return pa.schema(list(zip(keys, kinds, strict=True))).empty_table()


def _keys(
    left: pa.Table, right: pa.Table, on: Sequence[str], right_on: Sequence[str]
) -> tuple[list[Any], list[Any]]:
    """The key columns of both sides, in common types that Acero can join on."""
    lefts, rights = [], []
    for name, other in zip(on, right_on, strict=True):
        columns = [left.column(name), right.column(other)]
        kind = common_type(columns[0].type, columns[1].type)
        if kind is None:
            kinds = (str(columns[0].type), str(columns[1].type))
            raise SchemaMismatchError(
                name, kinds, (Source("left side of the join"), Source("right side of the join"))
            )
        pair = [convert(normalized(column), kind) for column in columns]
        if types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) or types.is_null(kind):
            pair = _numbered(pair, columns)
        lefts.append(pair[0])
        rights.append(pair[1])
    return lefts, rights


def _numbered(pair: list[Any], columns: list[Any]) -> list[Any]:
    """Numbers for the values of both sides, of types that Acero does not join on."""
    both = concat([pa.table({"key": column}) for column in pair]).column("key")
    numbers = group([both], len(both)).of_rows
    missing = both.is_null().to_numpy()
    split = len(columns[0])
    return [
        pa.array(numbers[:split], mask=missing[:split]),
        pa.array(numbers[split:], mask=missing[split:]),
    ]


def _matches(keys: tuple[list[Any], list[Any]], how: str, threads: bool) -> dict[str, pa.Array]:
    """Numbers of the rows of both sides that go together; null where a side has none."""
    sides = []
    order = ("left", "right")
    if len(keys[0][0]) < len(keys[1][0]):  # Acero makes its hash table of the second side
        order, keys, how = ("right", "left"), keys[::-1], _mirrored(how)
    for side, columns in zip(order, keys, strict=True):
        rows = arrays.of_numpy(np.arange(len(columns[0])))
        named = {f"{side} key {index}": column for index, column in enumerate(columns)}
        table = pa.table({side: rows, **named})
        sides.append(acero.Declaration("table_source", acero.TableSourceNodeOptions(table)))
    names = [[f"{side} key {index}" for index in range(len(keys[0]))] for side in order]
    outputs = {
        "left_output": [] if how in ("right semi", "right anti") else [order[0]],
        "right_output": [] if how in ("left semi", "left anti") else [order[1]],
    }
    options = acero.HashJoinNodeOptions(how, *names, **outputs)
    done = acero.Declaration("hashjoin", options, inputs=sides).to_table(use_threads=threads)
    return {name: done.column(name).combine_chunks() for name in done.column_names}


def _mirrored(how: str) -> str:
    """The kind of the join with its sides exchanged."""
    side, _, kind = how.partition(" ")
    return {"left": f"right {kind}", "right": f"left {kind}"}.get(side, how)


def _assemble(
    left: pa.Table,
    right: pa.Table,
    on: Sequence[str],
    right_on: Sequence[str],
    rows: dict[str, Any],
    how: str,
    suffixes: tuple[str, str],
) -> pa.Table:
    others = [name for name in right.column_names if name not in right_on]
    shared = {name for name in left.column_names if name in others}
    clash = sorted(name for name in shared if name not in on)
    if clash and suffixes[0] == suffixes[1]:
        raise ValueError(f"both tables have a column {clash[0]!r}: give left_suffix or right_suffix")
    left_rows, right_rows = left.take(rows["left"]), right.take(rows["right"])
    columns: dict[str, Any] = {}
    for name, column in zip(left.column_names, left_rows.columns, strict=True):
        if name in on:
            if how in ("right_outer", "full_outer"):
                column = _filled(column, right_rows.column(right_on[list(on).index(name)]), rows["left"])
            columns[name] = column
        else:
            columns[name + suffixes[0] if name in shared else name] = column
    for name in others:
        final = name + suffixes[1] if name in shared else name
        if final in columns:
            raise ValueError(f"the join would have two columns {final!r}: give another suffix")
        columns[final] = right_rows.column(name)
    return pa.table(columns)


def _filled(column: Any, other: Any, left_rows: Any) -> Any:
    """The left key, or the right one in rows that have no left side."""
    kind = common_type(column.type, other.type)
    both = concat([pa.table({"key": convert(part, kind)}) for part in (column, other)]).column("key")
    places = np.arange(len(column))
    without = left_rows.is_null().to_numpy(zero_copy_only=False)
    if not without.any():
        return both.slice(0, len(column))
    places[without] += len(column)
    return both.take(arrays.of_numpy(places))
