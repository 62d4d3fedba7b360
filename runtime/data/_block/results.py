"""Results of aggregations from their states, and what is done to columns before.

A function that makes a result gets the columns of states; where a state is null, there were no rows at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from runtime.data._block import arrays, batch, objects

Columns = Sequence[Any]
Finish = Callable[[Columns], pa.Array]


def as_float(column: Any) -> Any:
    """Numbers as floats."""
    return column.cast(pa.float64())


def is_missing(column: Any) -> Any:
    """1 for nulls and NaN, 0 for other values."""
    missing = column.is_null(nan_is_null=types.is_floating(column.type))
    return missing.cast(pa.int64())


def is_zero(ignore_nulls: bool) -> Callable[[Any], Any]:
    """1 for zeros, 0 for other values, for nulls null or 0."""

    def prepare(column: Any) -> Any:
        zeros = pc.equal(column, pa.scalar(0, pa.int64()).cast(column.type)).cast(pa.int64())
        return zeros if ignore_nulls else zeros.fill_null(0)

    return prepare


def first_state(states: Columns) -> pa.Array:
    """The state is the result."""
    return states[0]


def number(states: Columns) -> pa.Array:
    """A number of rows."""
    return _without_nulls(states[0])


def _without_nulls(column: Any) -> Any:
    """The column with 0 for nulls; a scalar is not made without need, because pyarrow imports pandas for it."""
    return column.fill_null(0) if column.null_count else column


def quotient(states: Columns) -> pa.Array:
    """The sum by the number; null if the sum is."""
    total, count = states
    return pc.divide(total, pc.if_else(pc.equal(count, 0), None, count).cast(pa.float64()))


def percentage(states: Columns) -> pa.Array:
    """The share in percent."""
    return pc.multiply(quotient([states[0].cast(pa.float64()), states[1]]), 100.0)


def standard_deviation(ddof: int) -> Finish:
    """Of moments: NaN for at most ddof values, null for none."""

    def finish(states: Columns) -> pa.Array:
        count, _, square = (arrays.to_numpy(_without_nulls(states[0].field(index))) for index in range(3))
        with np.errstate(divide="ignore", invalid="ignore"):
            deviation = np.sqrt(np.where(count > ddof, square / (count - ddof), np.nan))
        none = np.isnan(count) | (count == 0)
        return pa.array(deviation, mask=none, from_pandas=False) if none.any() else arrays.of_numpy(deviation)

    return finish


def quantile(q: float, ignore_nulls: bool) -> Finish:
    """Of lists of floats, interpolated. Null for no values; unless nulls are ignored, also with a null or NaN."""

    def finish(states: Columns) -> pa.Array:
        lists = states[0]
        of_values = arrays.to_numpy(pc.list_parent_indices(lists))
        values = lists.flatten().to_numpy(zero_copy_only=False)
        missing = np.isnan(values)
        sizes = np.bincount(of_values[~missing], minlength=len(lists))
        none = sizes == 0
        if not ignore_nulls:
            none |= np.bincount(of_values[missing], minlength=len(lists)) > 0
        values, of_values = values[~missing], of_values[~missing]
        ordered = values[np.lexsort((values, of_values))]
        if not len(ordered):
            return pa.nulls(len(lists), pa.float64())
        starts = np.cumsum(sizes) - sizes
        place = q * np.maximum(sizes - 1, 0)
        below = np.minimum(starts + np.floor(place).astype(np.int64), len(ordered) - 1)
        above = np.minimum(starts + np.ceil(place).astype(np.int64), len(ordered) - 1)
        low, high, share = ordered[below], ordered[above], place - np.floor(place)
        with np.errstate(invalid="ignore"):
            between = np.where(low == high, low, low + (high - low) * share)
        return pa.array(between, mask=none, from_pandas=False)

    return finish


def sketched_quantiles(quantiles: Sequence[float]) -> Finish:
    """Of sketches: a list of floats for each group, null for no values."""

    def finish(states: Columns) -> pa.Array:
        results: list[list[float] | None] = []
        for sketch in states[0]:
            if not sketch.is_valid or not len(sketch.values):
                results.append(None)
                continue
            values = sketch.values.field("value").to_numpy()
            weights = sketch.values.field("weight").to_numpy()
            ranks = np.cumsum(weights) - weights / 2
            results.append(np.interp(np.asarray(quantiles) * weights.sum(), ranks, values).tolist())
        return pa.array(results, pa.list_(pa.float64()))

    return finish


def distinct_values(states: Columns) -> pa.Array:
    """The values of counts, as lists."""
    lists = states[0]
    return _of_counts(lists, lists.flatten().field("value"))


def distinct_number(states: Columns) -> pa.Array:
    """The number of distinct values."""
    return _without_nulls(pc.list_value_length(states[0]).cast(pa.int64()))


def counted_values(states: Columns) -> pa.Array:
    """Distinct values and their numbers: a struct of two lists."""
    lists = states[0]
    pairs = lists.flatten()
    columns = [_of_counts(lists, pairs.field("value")), _of_counts(lists, pairs.field("count"))]
    return pa.StructArray.from_arrays(columns, ["values", "counts"], mask=lists.is_null())


def _of_counts(lists: Any, values: pa.Array) -> pa.Array:
    """Lists of the same lengths, of other values."""
    sizes = arrays.to_numpy(_without_nulls(pc.list_value_length(lists)))
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    large = types.is_large_list(lists.type)
    made = pa.LargeListArray if large else pa.ListArray
    places = arrays.of_numpy(offsets.astype(np.int64 if large else np.int32))
    return made.from_arrays(places, values, mask=lists.is_null() if lists.null_count else None)


def most_frequent(column: str, k: int) -> Finish:
    """The k values with the largest numbers: a list of structs."""

    def finish(states: Columns) -> pa.Array:
        results = []
        for counts in states[0]:
            pairs = counts.as_py() or []
            pairs.sort(key=lambda pair: -pair["count"])
            results.append([{column: pair["value"], "count": pair["count"]} for pair in pairs[:k]])
        value = states[0].type.value_type.field("value").type
        return pa.array(results, pa.list_(pa.struct([(column, value), ("count", pa.int64())])))

    return finish


def finish_python(finish: Callable[[Any], Any], empty: Callable[[], Any]) -> Finish:
    """Results that user code makes of its accumulators.

    Args:
        finish: makes the result of an accumulator.
        empty: makes the result of no rows.
    """

    def column(states: Columns) -> Any:
        accumulators = objects.to_list(states[0])
        return batch.column_of([empty() if kept is None else finish(kept[0]) for kept in accumulators])

    return column
