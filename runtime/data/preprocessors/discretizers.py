"""Numbers as the numbers of intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.data.aggregate import AggregateFnV2, Max, Min
from runtime.data.preprocessors.columns import ColumnPreprocessor, numbers_of


class _Discretizer(ColumnPreprocessor):
    """Replaces a value by the number of its interval; null outside of all intervals."""

    right: bool
    include_lowest: bool
    duplicates: str
    dtypes: dict[str, Any]

    def _edges(self, name: str) -> Any:
        """The borders of the intervals, in order."""
        raise NotImplementedError

    def _transform_column(self, name: str, column: Any) -> Any:
        edges = np.asarray(self._edges(name), np.float64)
        if len(np.unique(edges)) < len(edges):
            if self.duplicates == "raise":
                raise ValueError(
                    f"intervals of column {name!r} have equal borders: {edges.tolist()}; "
                    "duplicates='drop' leaves out empty intervals"
                )
            edges = np.unique(edges)
        values, _ = numbers_of(column)
        codes = np.searchsorted(edges, values, side="left" if self.right else "right") - 1
        if self.include_lowest:
            codes[values == edges[0]] = 0
        outside = (codes < 0) | (codes >= len(edges) - 1) | np.isnan(values)
        made = pa.array(codes, pa.int64(), mask=outside)
        dtype = self.dtypes.get(name)
        if dtype is None:
            return made
        if hasattr(dtype, "categories"):
            labels = pa.array(list(dtype.categories))
            return pa.DictionaryArray.from_arrays(made.cast(pa.int32()), labels)
        return made.cast(pa.from_numpy_dtype(np.dtype(dtype)))


class CustomKBinsDiscretizer(_Discretizer):
    """Replaces numbers by the number of the interval they are in. Needs no fitting.

    Args:
        columns: numbers.
        bins: borders of the intervals, in order, or a dict of them for each column.
        right: whether intervals hold their right border, rather than the left one.
        include_lowest: whether the first interval holds its left border too.
        duplicates: "raise" or "drop", of equal borders.
        dtypes: for some columns, an integer type, or a `pandas.CategoricalDtype` with names for intervals.
        output_columns: where the results go; the same columns by default.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: Sequence[str],
        bins: Any,
        *,
        right: bool = True,
        include_lowest: bool = False,
        duplicates: str = "raise",
        dtypes: Mapping[str, Any] | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self.bins = bins
        self.right, self.include_lowest, self.duplicates = right, include_lowest, duplicates
        self.dtypes = dict(dtypes or {})

    def _edges(self, name: str) -> Any:
        bins = self.bins[name] if isinstance(self.bins, Mapping) else self.bins
        return [bins[0].left, *(interval.right for interval in bins)] if hasattr(bins, "left") else list(bins)


class UniformKBinsDiscretizer(_Discretizer):
    """Replaces numbers by the number of their interval, of as many equal ones between the extremes.

    Args:
        columns: numbers.
        bins: how many intervals, or a dict of it for each column.
        right: whether intervals hold their right border, rather than the left one.
        include_lowest: whether the first interval holds its left border too. The extremes are inside always.
        duplicates: "raise" or "drop", of equal borders.
        dtypes: for some columns, an integer type, or a `pandas.CategoricalDtype` with names for intervals.
        output_columns: where the results go; the same columns by default.
    """

    def __init__(
        self,
        columns: Sequence[str],
        bins: int | Mapping[str, int],
        *,
        right: bool = True,
        include_lowest: bool = False,
        duplicates: str = "raise",
        dtypes: Mapping[str, Any] | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self.bins = bins
        self.right, self.include_lowest, self.duplicates = right, include_lowest, duplicates
        self.dtypes = dict(dtypes or {})

    def _aggregations(self) -> list[AggregateFnV2[Any, Any]]:
        return [agg for name in self.columns for agg in (Min(name), Max(name))]

    def _learn(self, results: dict[str, Any]) -> dict[str, Any]:
        stats = {}
        for name in self.columns:
            low, high = results[f"min({name})"], results[f"max({name})"]
            if low is None:
                raise ValueError(f"column {name!r} has no values to learn from")
            count = self.bins[name] if isinstance(self.bins, Mapping) else self.bins
            if low == high:  # as pandas does: intervals around the only value
                low, high = low - abs(low or 1) * 0.001, high + abs(high or 1) * 0.001
            edges = np.linspace(low, high, count + 1)
            if self.right:
                edges[0] -= (high - low) * 0.001
            else:
                edges[-1] += (high - low) * 0.001
            stats[name] = edges.tolist()
        return stats

    def _edges(self, name: str) -> Any:
        return self.stats_[name]
