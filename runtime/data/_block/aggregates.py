"""Aggregation in three steps: partial states of each block's groups, states combined, states finished.

A table of states has the key columns, and for each aggregation one column for each of its states. Aggregations
whose states are Arrow's own run in Acero in one pass; the others work on numbers of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from runtime.data._block import arrays
from runtime.data._block.groups import Groups, group, normalized
from runtime.data._block.schema_diff import concat
from runtime.data._block.states import Native, State, acero_columns, one_chunk


@dataclass(frozen=True)
class Aggregation:
    """How one aggregation is computed."""

    name: str
    """Of the result's column."""
    on: str | None
    """The column it is computed on; None for whole rows."""
    states: tuple[State, ...]
    finish: Callable[[Sequence[Any]], pa.Array]
    """Makes the result of the columns of states; a null state is that of no rows at all."""
    prepare: Callable[[Any], Any] = lambda column: column
    """Applied to the column first."""


class Aggregates(Protocol):
    """An aggregation of the public API."""

    def _aggregation(self) -> Aggregation: ...


def partial(
    table: pa.Table, keys: Sequence[str], aggs: Sequence[Aggregates], threads: bool = False
) -> pa.Table:
    """The states of a block's groups: one row for each group, in order of appearance.

    Args:
        threads: whether Arrow may use all cores; the order of groups is then random.

    Raises:
        KeyError: a column is missing.
        TypeError: an aggregation does not fit its column's type; names of results are equal.
    """
    made = [agg._aggregation() for agg in aggs]
    _check(table, keys, made)
    columns = [None if agg.on is None else _input(agg, table.column(agg.on)) for agg in made]
    jobs = [
        (f"{index}.{number}", state, columns[index], agg)
        for index, agg in enumerate(made)
        for number, state in enumerate(agg.states)
    ]
    key_columns = {key: normalized(table.column(key)) for key in keys}
    rows = pa.nulls(table.num_rows)

    def run(state: State, column: Any, groups: Groups) -> pa.Array:
        return state.partial(column, table, groups)

    natives = [
        (name, (rows if column is None else column, state.function, state.options))
        for name, state, column, _ in jobs
        if isinstance(state, Native)
    ]
    others = [
        (name, state, column, agg) for name, state, column, agg in jobs if not isinstance(state, Native)
    ]
    return _states(key_columns, natives, others, run, table.num_rows, threads)


def combine(
    tables: Iterable[pa.Table], keys: Sequence[str], aggs: Sequence[Aggregates], threads: bool = False
) -> pa.Table:
    """Tables of states, of the same keys and aggregations, made one.

    Args:
        tables: at least one.
        threads: see `partial`.
    """
    table = concat(list(tables))
    made = [agg._aggregation() for agg in aggs]
    natives, others = [], []
    for index, agg in enumerate(made):
        for number, state in enumerate(agg.states):
            name = f"{index}.{number}"
            column = table.column(name)
            if isinstance(state, Native):
                natives.append((name, (column, state.merge_function, state.merge_options)))
            else:
                others.append((name, state, column, agg))

    def run(state: State, column: Any, groups: Groups) -> pa.Array:
        return state.merge(column, groups)

    key_columns = {key: table.column(key) for key in keys}
    return _states(key_columns, natives, others, run, table.num_rows, threads)


def final(table: pa.Table, keys: Sequence[str], aggs: Sequence[Aggregates]) -> pa.Table:
    """The results of combined states: the key columns and one column for each aggregation.

    Without keys, the result has one row, also for no rows at all.
    """
    made = [agg._aggregation() for agg in aggs]
    if not keys and table.num_rows == 0:
        table = pa.table({field.name: pa.nulls(1, field.type) for field in table.schema})
    results = {key: table.column(key) for key in keys}
    for index, agg in enumerate(made):
        states = [one_chunk(table.column(f"{index}.{number}")) for number in range(len(agg.states))]
        results[agg.name] = agg.finish(states)
    return pa.table(results)


def aggregate(
    tables: Iterable[pa.Table], keys: Sequence[str], aggs: Sequence[Aggregates], threads: bool = False
) -> pa.Table:
    """All three steps, for blocks that are in one process."""
    partials = [partial(table, keys, aggs, threads) for table in tables]
    states = partials[0] if len(partials) == 1 else combine(partials, keys, aggs, threads)
    return final(states, keys, aggs)


def _check(table: pa.Table, keys: Sequence[str], made: Sequence[Aggregation]) -> None:
    known = set(table.column_names)
    for name in (*keys, *(agg.on for agg in made if agg.on is not None)):
        if name not in known:
            raise KeyError(
                f"there is no column {name!r}; columns are {', '.join(map(repr, table.column_names))}"
            )
    names = [*keys, *(agg.name for agg in made)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TypeError(f"several results would be named {twice[0]!r}: give one of them another alias_name")


def _input(agg: Aggregation, column: Any) -> Any:
    """What an aggregation is computed on. Arrow aggregates no dictionaries, so they are taken apart."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    try:
        return agg.prepare(column)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise TypeError(f"{agg.name} cannot be computed on a column of type {kind}") from error


def _states(
    keys: dict[str, Any],
    natives: Sequence[tuple[str, tuple[Any, str, Any]]],
    others: Sequence[tuple[str, State, Any, Aggregation]],
    run: Callable[[State, Any, Groups], pa.Array],
    num_rows: int,
    threads: bool,
) -> pa.Table:
    """The table of states; in one pass of Acero if all are native and it groups by keys of these types."""
    order = [name for name, _ in natives] + [name for name, *_ in others]
    order.sort(key=lambda name: tuple(map(int, name.split("."))))
    plain = all(_acero_groups(column.type) for column in keys.values())
    if not others and plain and keys and num_rows:
        columns = acero_columns([job for _, job in natives], list(keys.values()), None, threads)
        made = dict(zip([*(name for name, _ in natives), *keys], columns, strict=True))
        return pa.table({name: made[name] for name in (*keys, *order)})
    groups = group(list(keys.values()), num_rows)
    results: dict[str, Any] = {}
    if natives:
        numbers = arrays.of_numpy(groups.of_rows)
        jobs = [job for _, job in natives]
        results = dict(
            zip(
                (name for name, _ in natives),
                acero_columns(jobs, [numbers], groups.count, threads),
                strict=True,
            )
        )
    for name, state, column, _ in others:
        results[name] = run(state, column, groups)
    first = arrays.of_numpy(groups.first_rows)
    made = {name: column.take(first) for name, column in keys.items()}
    return pa.table({**made, **{name: results[name] for name in order}})


def _acero_groups(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) or pa.types.is_null(kind))
