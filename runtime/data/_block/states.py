"""States of aggregations: what is kept of each group's rows until all blocks were seen."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runtime.data._block import acero, arrays, objects
from runtime.data._block.groups import Groups, group


class State(Protocol):
    """What is kept of a group's rows until all blocks were seen."""

    def partial(self, column: Any, table: pa.Table, groups: Groups) -> pa.Array:
        """The state of each group. `column` is what the aggregation is computed on."""

    def merge(self, states: Any, groups: Groups) -> pa.Array:
        """States of one group made one."""


@dataclass(frozen=True)
class Native:
    """A state that Arrow's hash aggregation computes; functions are named without their prefix "hash_"."""

    function: str
    merge_function: str
    options: Any = None
    merge_options: Any = None

    def partial(self, column: Any, table: pa.Table, groups: Groups) -> pa.Array:
        job = (column, self.function, self.options)
        return acero_columns([job], [arrays.of_numpy(groups.of_rows)], groups.count)[0]

    def merge(self, states: Any, groups: Groups) -> pa.Array:
        job = (states, self.merge_function, self.merge_options)
        return acero_columns([job], [arrays.of_numpy(groups.of_rows)], groups.count)[0]


def native(function: str, ignore_nulls: bool) -> Native:
    """Sum, min or max. Without values it is null; unless nulls are ignored, also with one."""
    options = pc.ScalarAggregateOptions(skip_nulls=ignore_nulls, min_count=1)
    return Native(function, function, options, options)


def count(mode: str) -> Native:
    """The number of rows ("all") or of values that are not null ("only_valid")."""
    return Native("count", "sum", pc.CountOptions(mode=mode), pc.ScalarAggregateOptions(min_count=0))


SHARE = (native("sum", True), count("only_valid"))
"""States of a share or a mean."""


@dataclass(frozen=True)
class Values:
    """All values of a group as a list, in the order of the rows."""

    ignore_nulls: bool

    def partial(self, column: Any, table: pa.Table, groups: Groups) -> pa.Array:
        values, of_values = _kept(column, groups.of_rows, self.ignore_nulls)
        return _lists(values, of_values, groups.count)

    def merge(self, states: Any, groups: Groups) -> pa.Array:
        values, of_values = _flat(states, groups)
        return _lists(values, of_values, groups.count)


@dataclass(frozen=True)
class Counts:
    """The distinct values of a group with their numbers, as a list of structs, in order of appearance."""

    ignore_nulls: bool
    elements: bool = False
    """Whether lists are taken apart, and their elements are counted; other values count as they are."""

    def partial(self, column: Any, table: pa.Table, groups: Groups) -> pa.Array:
        of_rows = groups.of_rows
        if self.elements and pa.types.is_nested(column.type):
            column, of_rows = _flat(column, groups)
        values, of_values = _kept(column, of_rows, self.ignore_nulls)
        return self._counted(values, np.ones(len(of_values), np.int64), of_values, groups.count)

    def merge(self, states: Any, groups: Groups) -> pa.Array:
        pairs, of_pairs = _flat(states, groups)
        return self._counted(
            pairs.field("value"), arrays.to_numpy(pairs.field("count")), of_pairs, groups.count
        )

    @staticmethod
    def _counted(column: Any, counts: Any, of_rows: Any, num_groups: int) -> pa.Array:
        pairs = group([arrays.of_numpy(of_rows), column], len(of_rows))
        totals = np.zeros(pairs.count, np.int64)
        np.add.at(totals, pairs.of_rows, counts)
        values = one_chunk(column.take(arrays.of_numpy(pairs.first_rows)))
        entries = pa.StructArray.from_arrays([values, arrays.of_numpy(totals)], ["value", "count"])
        return _lists(entries, of_rows[pairs.first_rows], num_groups)


@dataclass(frozen=True)
class Moments:
    """Number, mean and sum of squared distances from the mean, merged as by Chan, Golub and LeVeque (1979)."""

    ignore_nulls: bool

    def partial(self, column: Any, table: pa.Table, groups: Groups) -> pa.Array:
        numbers = one_chunk(column.cast(pa.float64()))
        valid = np.ones(len(numbers), bool)
        if numbers.null_count:
            valid = numbers.is_valid().to_numpy(zero_copy_only=False)
            numbers = numbers.fill_null(0.0)
        values = arrays.to_numpy(numbers)
        weights = valid.astype(np.float64)
        if not self.ignore_nulls:  # one null makes the group's result null
            weights[~valid], values = np.nan, np.where(valid, values, np.nan)
        return self._merged(weights, values, np.zeros(len(values)), groups)

    def merge(self, states: Any, groups: Groups) -> pa.Array:
        states = one_chunk(states)
        counts, means, squares = (arrays.to_numpy(states.field(index)) for index in range(3))
        return self._merged(counts, means, squares, groups)

    @staticmethod
    def _merged(counts: Any, means: Any, squares: Any, groups: Groups) -> pa.Array:
        def total(values: Any) -> Any:
            return np.bincount(groups.of_rows, weights=values, minlength=groups.count)

        count = total(counts)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.where(count == 0, 0.0, total(counts * means) / count)
            square = total(squares) + total(counts * (means - mean[groups.of_rows]) ** 2)
        return pa.StructArray.from_arrays(
            [arrays.of_numpy(part) for part in (count, mean, square)], ["count", "mean", "square"]
        )


@dataclass(frozen=True)
class Sketch:
    """A sample of a group's values with weights, as a list of structs in order of the values.

    A group with more than twice `precision` entries is cut to `precision` of equal weight and its smallest and
    largest value, whose weight is 0. Each cut moves the rank of a quantile by up to 1 / (2 * precision) of all.
    """

    precision: int

    def partial(self, column: Any, table: pa.Table, groups: Groups) -> pa.Array:
        values, of_values = _kept(column, groups.of_rows, True)
        numbers = one_chunk(values).to_numpy()
        known = ~np.isnan(numbers)
        return self._cut(numbers[known], np.ones(known.sum()), of_values[known], groups.count)

    def merge(self, states: Any, groups: Groups) -> pa.Array:
        entries, of_entries = _flat(states, groups)
        return self._cut(
            arrays.to_numpy(entries.field("value")),
            arrays.to_numpy(entries.field("weight")),
            of_entries,
            groups.count,
        )

    def _cut(self, values: Any, weights: Any, of_values: Any, num_groups: int) -> pa.Array:
        order = np.lexsort((values, of_values))
        values, weights, of_values = values[order], weights[order], of_values[order]
        sizes = np.bincount(of_values, minlength=num_groups)
        if len(sizes) and sizes.max() > 2 * self.precision:
            borders = np.cumsum([0, *sizes])
            cut = [
                self._cut_one(values[start:end], weights[start:end])
                for start, end in itertools.pairwise(borders)
            ]
            values, weights = (np.concatenate(parts) for parts in zip(*cut, strict=True))
            of_values = np.repeat(np.arange(num_groups), [len(part[0]) for part in cut])
        entries = pa.StructArray.from_arrays(
            [arrays.of_numpy(values), arrays.of_numpy(weights)], ["value", "weight"]
        )
        return _lists(entries, of_values, num_groups)

    def _cut_one(self, values: Any, weights: Any) -> tuple[Any, Any]:
        if len(values) <= 2 * self.precision:
            return values, weights
        ranks = np.cumsum(weights) - weights / 2
        share = weights.sum() / self.precision
        chosen = np.searchsorted(ranks, (np.arange(self.precision) + 0.5) * share)
        kept = values[np.minimum(chosen, len(values) - 1)]
        ends = np.zeros(1)
        return (
            np.concatenate([values[:1], kept, values[-1:]]),
            np.concatenate([ends, np.full(self.precision, share), ends]),
        )


@dataclass(frozen=True)
class Python:
    """An accumulator of user code for each group, which is any object."""

    accumulate: Callable[[pa.Table], Any]
    """Called with the rows of a group."""
    combine: Callable[[Sequence[Any]], Any]
    """Called with the accumulators of a group."""

    def partial(self, column: Any, table: pa.Table, groups: Groups) -> pa.Array:
        order, borders = groups.slices()
        rows = table.take(arrays.of_numpy(order)) if table.num_columns else table
        pairs = itertools.pairwise(borders.tolist())
        return _wrapped([self.accumulate(rows.slice(start, end - start)) for start, end in pairs])

    def merge(self, states: Any, groups: Groups) -> pa.Array:
        values = [accumulator for (accumulator,) in objects.to_list(states)]
        order, borders = groups.slices()
        ordered = [values[row] for row in order.tolist()]
        pairs = itertools.pairwise(borders.tolist())
        return _wrapped([self.combine(ordered[start:end]) for start, end in pairs])


def _wrapped(accumulators: Sequence[Any]) -> pa.Array:
    """A column of objects in which an accumulator that is None is not null: null is the state of no rows."""
    return objects.from_objects([(accumulator,) for accumulator in accumulators])


def acero_columns(
    jobs: Sequence[tuple[Any, str, Any]], keys: Sequence[Any], num_groups: int | None, threads: bool = False
) -> list[pa.Array]:
    """Columns of Arrow's hash aggregations.

    Args:
        jobs: column, function and options of each.
        keys: columns to group by.
        num_groups: if the key is the group's number, the number of groups: columns are in order of it then.
            Otherwise, the columns of the keys follow those of the jobs.
    """
    names = [f"in {index}" for index in range(len(jobs))]
    key_names = [f"key {index}" for index in range(len(keys))]
    columns = {
        **dict(zip(names, (column for column, *_ in jobs), strict=True)),
        **dict(zip(key_names, keys, strict=True)),
    }
    specs = [
        (name, f"hash_{function}", options, f"out {index}")
        for index, (name, (_, function, options)) in enumerate(zip(names, jobs, strict=True))
    ]
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.table(columns))),
            acero.Declaration("aggregate", acero.AggregateNodeOptions(specs, keys=key_names)),
        ]
    )
    try:
        done = plan.to_table(use_threads=threads)
    except pa.ArrowNotImplementedError as error:
        kinds = ", ".join(f"{function} of {column.type}" for column, function, _ in jobs)
        raise TypeError(f"Arrow does not compute one of: {kinds}") from error
    outputs = [one_chunk(done.column(f"out {index}")) for index in range(len(jobs))]
    if num_groups is None:
        return [*outputs, *(done.column(name) for name in key_names)]
    numbers = arrays.to_numpy(one_chunk(done.column(key_names[0])))
    if len(numbers) == num_groups and (np.diff(numbers) == 1).all():
        return outputs
    order = np.argsort(numbers)
    return [output.take(arrays.of_numpy(order)) for output in outputs]


def one_chunk(column: Any) -> pa.Array:
    """The column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _lists(values: Any, of_values: Any, num_groups: int) -> pa.Array:
    """A list for each group, of the values that belong to it, in their order."""
    values = one_chunk(values)
    if (np.diff(of_values) < 0).any():
        values = values.take(arrays.of_numpy(np.argsort(of_values, kind="stable")))
    offsets = np.zeros(num_groups + 1, np.int64)
    np.cumsum(np.bincount(of_values, minlength=num_groups), out=offsets[1:])
    if offsets[-1] < 2**31:
        return pa.ListArray.from_arrays(arrays.of_numpy(offsets.astype(np.int32)), values)
    return pa.LargeListArray.from_arrays(arrays.of_numpy(offsets), values)


def _kept(column: Any, of_rows: Any, ignore_nulls: bool) -> tuple[Any, Any]:
    """The values that count, and the number of the group of each."""
    if not (ignore_nulls and column.null_count):
        return column, of_rows
    valid = column.is_valid()
    return column.filter(valid), of_rows[valid.to_numpy(zero_copy_only=False)]


def _flat(states: Any, groups: Groups) -> tuple[pa.Array, Any]:
    """The elements of a column of lists, and the number of the group of each."""
    lists = one_chunk(states)
    return lists.flatten(), groups.of_rows[arrays.to_numpy(pc.list_parent_indices(lists))]
