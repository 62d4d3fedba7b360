"""Methods of `Dataset` that compute numbers over all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from runtime.data._plan import nodes

from .columns import Columns


class Summarizing(Columns):
    """See `Dataset`. A result for one column is a value, for several a dict by the names of aggregations."""

    def aggregate(self, *aggs: Any) -> Any:
        """The results of aggregations (`runtime.data.aggregate`), by their names."""
        from runtime.data._block.batch import rows

        node = nodes.Aggregate(self._node, (), aggs)
        found = [row for table in self._tables(node) for row in rows(table)]
        return found[0] if found else {agg.name: None for agg in aggs}

    def sum(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Any:
        """The sum of one column, or of several; of all by default."""
        from runtime.data.aggregate import Sum

        return self._each(Sum, on, ignore_nulls)

    def min(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Any:
        """The smallest value of one column, or of several."""
        from runtime.data.aggregate import Min

        return self._each(Min, on, ignore_nulls)

    def max(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Any:
        """The largest value of one column, or of several."""
        from runtime.data.aggregate import Max

        return self._each(Max, on, ignore_nulls)

    def mean(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Any:
        """The mean of one column, or of several."""
        from runtime.data.aggregate import Mean

        return self._each(Mean, on, ignore_nulls)

    def std(self, on: str | Sequence[str] | None = None, ddof: int = 1, ignore_nulls: bool = True) -> Any:
        """The standard deviation of one column, or of several."""
        from runtime.data.aggregate import Std

        return self._each(Std, on, ignore_nulls, ddof=ddof)

    def unique(self, column: str, ignore_nulls: bool = False) -> list[Any]:
        """The distinct values of a column, in no particular order."""
        groups = self.groupby(column).count()
        values = [row[column] for row in groups.take_all()]
        return [value for value in values if value is not None] if ignore_nulls else values

    def _each(
        self, kind: Callable[..., Any], on: str | Sequence[str] | None, ignore_nulls: bool, **options: Any
    ) -> Any:
        names = [on] if isinstance(on, str) else list(on) if on is not None else self.columns() or []
        results = self.aggregate(*(kind(name, ignore_nulls=ignore_nulls, **options) for name in names))
        if isinstance(on, str):
            (value,) = results.values()
            return value
        return results
