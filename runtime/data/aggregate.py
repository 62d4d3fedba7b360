"""Aggregations for `Dataset.aggregate` and `GroupedData.aggregate`, built in and of users."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from runtime.data._block import aggregates, batch, results, states
from runtime.data._block.aggregates import Aggregation

Accumulator = TypeVar("Accumulator")
Result = TypeVar("Result")


class AggregateFn:
    """An aggregation by functions. `AggregateFnV2` is the newer way: a class with the functions as methods.

    Args:
        init: makes an empty accumulator. Its argument is None: an accumulator knows no keys.
        merge: makes one of two accumulators.
        name: of the result's column.
        accumulate_row: adds a row, a dict, to an accumulator and returns it. Either this or accumulate_block.
        accumulate_block: adds a `pyarrow.Table` to an accumulator and returns it.
        finalize: makes the result of an accumulator.
    """

    def __init__(
        self,
        init: Callable[[Any], Any],
        merge: Callable[[Any, Any], Any],
        name: str,
        accumulate_row: Callable[[Any, dict[str, Any]], Any] | None = None,
        accumulate_block: Callable[[Any, pa.Table], Any] | None = None,
        finalize: Callable[[Any], Any] | None = None,
    ) -> None:
        if (accumulate_row is None) == (accumulate_block is None):
            raise ValueError("an aggregation has either accumulate_row or accumulate_block")
        self.name = name
        self._init, self._merge, self._finalize = init, merge, finalize
        self._accumulate_row, self._accumulate_block = accumulate_row, accumulate_block

    def get_target_column(self) -> str | None:
        """The column it is computed on; None if it may read all."""
        return None

    def _aggregation(self) -> Aggregation:
        def accumulate(rows: pa.Table) -> Any:
            accumulator = self._init(None)
            if self._accumulate_block is not None:
                return self._accumulate_block(accumulator, rows)
            assert self._accumulate_row is not None
            for row in batch.rows(rows):
                accumulator = self._accumulate_row(accumulator, row)
            return accumulator

        def combine(accumulators: Sequence[Any]) -> Any:
            merged = accumulators[0]
            for accumulator in accumulators[1:]:
                merged = self._merge(merged, accumulator)
            return merged

        def finish(value: Any) -> Any:
            return value if self._finalize is None else self._finalize(value)

        def empty() -> Any:
            return finish(self._init(None))

        state = states.Python(accumulate, combine)
        return Aggregation(self.name, None, (state,), results.finish_python(finish, empty))


class AggregateFnV2(AggregateFn, abc.ABC, Generic[Accumulator, Result]):
    """An aggregation of one's own: a class with `aggregate_block`, `combine` and, if needed, `finalize`.

    Args:
        name: of the result's column.
        zero_factory: makes the accumulator of no rows.
        on: the column it is computed on; None if it reads whole rows.
        ignore_nulls: whether accumulators that are None or NaN are left out; otherwise one of them makes the result
            None.
    """

    def __init__(
        self, name: str, zero_factory: Callable[[], Accumulator], *, on: str | None, ignore_nulls: bool
    ) -> None:
        if not name:
            raise ValueError("an aggregation needs a name")
        self.name = name
        self._on = on
        self._ignore_nulls = ignore_nulls
        self._zero_factory = zero_factory

    @abc.abstractmethod
    def aggregate_block(self, block: pa.Table) -> Accumulator | None:
        """The accumulator of rows of one group."""

    @abc.abstractmethod
    def combine(self, current_accumulator: Accumulator, new: Accumulator) -> Accumulator:
        """One accumulator of two."""

    def finalize(self, accumulator: Accumulator) -> Any:
        """The result."""
        return accumulator

    def get_target_column(self) -> str | None:
        """The column it is computed on; None if it may read all."""
        return self._on

    def get_agg_name(self) -> str:
        """The name of the aggregation's kind, e.g. "Sum"."""
        return type(self).__name__

    def _aggregation(self) -> Aggregation:
        def combine(accumulators: Sequence[Any]) -> Any:
            known = [accumulator for accumulator in accumulators if not _is_null(accumulator)]
            if not self._ignore_nulls and len(known) < len(accumulators):
                return None
            if not known:
                return None
            merged = known[0] if self._ignore_nulls else self._zero_factory()
            for accumulator in known[1:] if self._ignore_nulls else known:
                merged = self.combine(merged, accumulator)
            return merged

        def finish(value: Any) -> Any:
            return None if _is_null(value) else self.finalize(value)

        def empty() -> Any:
            return None if self._ignore_nulls else finish(self._zero_factory())

        state = states.Python(self.aggregate_block, combine)
        return Aggregation(self.name, self._on, (state,), results.finish_python(finish, empty))


class VectorizedAggregateFnV2(AggregateFnV2[Accumulator, Result]):
    """A built-in aggregation. Its accumulators are tables of states."""

    def aggregate_block(self, block: pa.Table) -> Any:
        """The states of rows of one group."""
        return aggregates.partial(block, (), [self])

    def combine(self, current_accumulator: Any, new: Any) -> Any:
        """One table of states of two."""
        return aggregates.combine([current_accumulator, new], (), [self])

    def finalize(self, accumulator: Any) -> Any:
        """The result."""
        return aggregates.final(accumulator, (), [self]).column(0)[0].as_py()

    def _on_column(self) -> str:
        if self._on is None:
            raise ValueError(
                f"{type(self).__name__} needs the name of a column, as its first argument or on="
            )
        return self._on

    @abc.abstractmethod
    def _aggregation(self) -> Aggregation:
        """How the kernels compute it."""


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


class _BuiltIn(VectorizedAggregateFnV2[Any, Any]):
    """Built-in aggregations of one column, with the result's name derived from it."""

    _kind: str
    """The name before the column's in the result's name."""

    def __init__(self, on: str | None, ignore_nulls: bool, alias_name: str | None) -> None:
        name = alias_name or f"{self._kind}({on or ''})"
        super().__init__(name, lambda: None, on=on, ignore_nulls=ignore_nulls)


class Count(_BuiltIn):
    """The number of rows, or of values that are not null: `Count("x", ignore_nulls=True)`."""

    _kind = "count"

    def __init__(
        self, on: str | None = None, ignore_nulls: bool = False, alias_name: str | None = None
    ) -> None:
        super().__init__(on, ignore_nulls, alias_name)

    def _aggregation(self) -> Aggregation:
        only = self._ignore_nulls and self._on is not None
        return Aggregation(
            self.name,
            self._on,
            (states.count("only_valid" if only else "all"),),
            results.number,
        )


class Sum(_BuiltIn):
    """The sum; None if there are no values, and with ignore_nulls=False also if one is null."""

    _kind = "sum"

    def __init__(
        self, on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None
    ) -> None:
        super().__init__(on, ignore_nulls, alias_name)

    def _aggregation(self) -> Aggregation:
        state = states.native("sum", self._ignore_nulls)
        return Aggregation(self.name, self._on_column(), (state,), results.first_state)


class Min(_BuiltIn):
    """The smallest value, of numbers, strings and times. NaN counts only where there is nothing else."""

    _kind = "min"

    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
        zero_factory: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(on, ignore_nulls, alias_name)

    def _aggregation(self) -> Aggregation:
        state = states.native(self._kind, self._ignore_nulls)
        return Aggregation(self.name, self._on_column(), (state,), results.first_state)


class Max(Min):
    """The largest value, of numbers, strings and times. NaN counts only where there is nothing else."""

    _kind = "max"


class AbsMax(_BuiltIn):
    """The largest absolute value."""

    _kind = "abs_max"

    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
        zero_factory: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(on, ignore_nulls, alias_name)

    def _aggregation(self) -> Aggregation:
        state = states.native("max", self._ignore_nulls)
        return Aggregation(self.name, self._on_column(), (state,), results.first_state, pc.abs)


class Mean(_BuiltIn):
    """The arithmetic mean, a float."""

    _kind = "mean"

    def __init__(
        self, on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None
    ) -> None:
        super().__init__(on, ignore_nulls, alias_name)

    def _aggregation(self) -> Aggregation:
        kept = (states.native("sum", self._ignore_nulls), states.count("only_valid"))
        return Aggregation(self.name, self._on_column(), kept, results.quotient, results.as_float)


class Std(_BuiltIn):
    """The standard deviation. NaN for groups with no more than ddof values.

    Args:
        ddof: subtracted from the number of values in the divisor.
    """

    _kind = "std"

    def __init__(
        self,
        on: str | None = None,
        ddof: int = 1,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
    ) -> None:
        super().__init__(on, ignore_nulls, alias_name)
        self._ddof = ddof

    def _aggregation(self) -> Aggregation:
        return Aggregation(
            self.name,
            self._on_column(),
            (states.Moments(self._ignore_nulls),),
            results.standard_deviation(self._ddof),
        )


class Quantile(_BuiltIn):
    """A quantile, exact: all values of a group are held until the end.

    Args:
        q: between 0 and 1; between two values, the result is interpolated.
    """

    _kind = "quantile"

    def __init__(
        self,
        on: str | None = None,
        q: float = 0.5,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
    ) -> None:
        super().__init__(on, ignore_nulls, alias_name)
        if not 0 <= q <= 1:
            raise ValueError(f"a quantile is between 0 and 1, not {q}")
        self._q = q

    def _aggregation(self) -> Aggregation:
        return Aggregation(
            self.name,
            self._on_column(),
            (states.Values(self._ignore_nulls),),
            results.quantile(self._q, self._ignore_nulls),
            results.as_float,
        )


class ApproximateQuantile(_BuiltIn):
    """Several quantiles, as a list of floats.

    Args:
        quantiles: between 0 and 1.
        quantile_precision: values of a group that are kept at most, about; the error of a quantile's rank is about
            one part of it.
    """

    _kind = "approx_quantile"

    def __init__(
        self,
        on: str,
        quantiles: list[float],
        quantile_precision: int = 800,
        alias_name: str | None = None,
    ) -> None:
        super().__init__(on, True, alias_name)
        self._quantiles = quantiles
        self._precision = quantile_precision

    def _aggregation(self) -> Aggregation:
        return Aggregation(
            self.name,
            self._on_column(),
            (states.Sketch(self._precision),),
            results.sketched_quantiles(self._quantiles),
            results.as_float,
        )


class Unique(_BuiltIn):
    """The distinct values as a list, in order of appearance.

    Args:
        encode_lists: whether the column's lists are taken apart: the distinct elements then.
    """

    _kind = "unique"

    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = False,
        alias_name: str | None = None,
        encode_lists: bool | None = None,
    ) -> None:
        super().__init__(on, ignore_nulls, alias_name)
        self._encode_lists = encode_lists

    def _aggregation(self) -> Aggregation:
        kept = states.Counts(self._ignore_nulls, elements=bool(self._encode_lists))
        return Aggregation(self.name, self._on_column(), (kept,), results.distinct_values)


class CountDistinct(_BuiltIn):
    """The number of distinct values."""

    _kind = "count_distinct"

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__(on, ignore_nulls, alias_name)

    def _aggregation(self) -> Aggregation:
        return Aggregation(
            self.name, self._on_column(), (states.Counts(self._ignore_nulls),), results.distinct_number
        )


class ValueCounter(_BuiltIn):
    """The distinct values and how often each is there: `{"values": [...], "counts": [...]}`."""

    _kind = "value_counter"

    def __init__(self, on: str, alias_name: str | None = None) -> None:
        super().__init__(on, False, alias_name)

    def _aggregation(self) -> Aggregation:
        return Aggregation(self.name, self._on_column(), (states.Counts(False),), results.counted_values)


class ApproximateTopK(_BuiltIn):
    """The most frequent values: a list of `{column: value, "count": number}`, the most frequent first.

    The numbers are exact here: all distinct values are held until the end.

    Args:
        k: how many.
        log_capacity: for Ray's sketch; has no effect.
        encode_lists: whether the elements of lists are counted.
    """

    _kind = "approx_topk"

    def __init__(
        self,
        on: str,
        k: int,
        log_capacity: int = 15,
        alias_name: str | None = None,
        encode_lists: bool = False,
    ) -> None:
        super().__init__(on, True, alias_name)
        self._k = k
        self._encode_lists = encode_lists

    def _aggregation(self) -> Aggregation:
        kept = (states.Counts(True, elements=self._encode_lists),)
        on = self._on_column()
        return Aggregation(self.name, on, kept, results.most_frequent(on, self._k))


class AsList(_BuiltIn):
    """All values as a list."""

    _kind = "list"

    def __init__(self, on: str, alias_name: str | None = None, ignore_nulls: bool = False) -> None:
        super().__init__(on, ignore_nulls, alias_name)

    def _aggregation(self) -> Aggregation:
        kept = (states.Values(self._ignore_nulls),)
        return Aggregation(self.name, self._on_column(), kept, results.first_state)


class MissingValuePercentage(_BuiltIn):
    """The share of values that are null or NaN, in percent."""

    _kind = "missing_pct"

    def __init__(self, on: str, alias_name: str | None = None) -> None:
        super().__init__(on, False, alias_name)

    def _aggregation(self) -> Aggregation:
        return Aggregation(self.name, self._on_column(), states.SHARE, results.percentage, results.is_missing)


class ZeroPercentage(_BuiltIn):
    """The share of zeros, in percent; of the values that are not null, or with ignore_nulls=False of all."""

    _kind = "zero_pct"

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__(on, ignore_nulls, alias_name)

    def _aggregation(self) -> Aggregation:
        return Aggregation(
            self.name,
            self._on_column(),
            states.SHARE,
            results.percentage,
            results.is_zero(self._ignore_nulls),
        )
