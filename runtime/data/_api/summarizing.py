"""Methods of `Dataset` that compute numbers over all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.data._plan import nodes

from .columns import Columns
from .numbers import Names, Numbers


class Summarizing(Numbers, Columns):
    """See `Dataset`. A result for one column is a value, for several a dict by the names of aggregations."""

    def aggregate(self, *aggs: Any) -> Any:
        """The results of aggregations (`runtime.data.aggregate`), by their names."""
        from runtime.data._block.batch import rows

        node = nodes.Aggregate(self._node, (), aggs)
        found = [row for table in self._tables(node) for row in rows(table)]
        return found[0] if found else {agg.name: None for agg in aggs}

    def unique(self, column: str, ignore_nulls: bool = False) -> list[Any]:
        """The distinct values of a column, in no particular order."""
        groups = self.groupby(column).count()
        values = [row[column] for row in groups.take_all()]
        return [value for value in values if value is not None] if ignore_nulls else values

    def _each(self, kind: Callable[..., Any], on: Names, ignore_nulls: bool, **options: Any) -> Any:
        names = [on] if isinstance(on, str) else list(on) if on is not None else self.columns() or []
        results = self.aggregate(*(kind(name, ignore_nulls=ignore_nulls, **options) for name in names))
        if isinstance(on, str):
            (value,) = results.values()
            return value
        return results
