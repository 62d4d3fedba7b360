"""Sums and the like of columns, which data sets and groups have alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

Names = str | Sequence[str] | None


class Numbers(ABC):
    """Aggregations of one column, of several, or of all by default. Those of groups are data sets."""

    def sum(self, on: Names = None, ignore_nulls: bool = True) -> Any:
        """The sum of one column, or of several."""
        from runtime.data.aggregate import Sum

        return self._each(Sum, on, ignore_nulls)

    def min(self, on: Names = None, ignore_nulls: bool = True) -> Any:
        """The smallest value of one column, or of several."""
        from runtime.data.aggregate import Min

        return self._each(Min, on, ignore_nulls)

    def max(self, on: Names = None, ignore_nulls: bool = True) -> Any:
        """The largest value of one column, or of several."""
        from runtime.data.aggregate import Max

        return self._each(Max, on, ignore_nulls)

    def mean(self, on: Names = None, ignore_nulls: bool = True) -> Any:
        """The mean of one column, or of several."""
        from runtime.data.aggregate import Mean

        return self._each(Mean, on, ignore_nulls)

    def std(self, on: Names = None, ddof: int = 1, ignore_nulls: bool = True) -> Any:
        """The standard deviation of one column, or of several."""
        from runtime.data.aggregate import Std

        return self._each(Std, on, ignore_nulls, ddof=ddof)

    @abstractmethod
    def _each(self, kind: Callable[..., Any], on: Names, ignore_nulls: bool, **options: Any) -> Any:
        """The results of an aggregation of each column."""
