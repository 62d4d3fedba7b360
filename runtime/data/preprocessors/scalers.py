"""Scaling of numbers. Null stays null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.data.aggregate import AbsMax, AggregateFnV2, ApproximateQuantile, Max, Mean, Min, Std
from runtime.data.preprocessor import get_column, set_column
from runtime.data.preprocessors.columns import ColumnPreprocessor, column_of_numbers, numbers_of


def _shifted(column: Any, minus: float | None, by: float | None) -> Any:
    """(x - minus) / by; all null if there were no values to learn from. A divisor of 0 counts as 1."""
    if minus is None or by is None:
        return pa.nulls(len(column), pa.float64())
    values, nulls = numbers_of(column)
    return column_of_numbers((values - minus) / (by or 1.0), nulls)


class StandardScaler(ColumnPreprocessor):
    """Subtracts the mean and divides by the standard deviation (of the population); constant columns become 0.

    Args:
        columns: numbers.
        output_columns: where the results go; the same columns by default.
    """

    def __init__(self, columns: Sequence[str], output_columns: Sequence[str] | None = None) -> None:
        super().__init__(columns, output_columns)

    def _aggregations(self) -> list[AggregateFnV2[Any, Any]]:
        return [agg for name in self.columns for agg in (Mean(name), Std(name, ddof=0))]

    def _transform_column(self, name: str, column: Any) -> Any:
        return _shifted(column, self.stats_[f"mean({name})"], self.stats_[f"std({name})"])


class MinMaxScaler(ColumnPreprocessor):
    """Scales the smallest value to 0 and the largest to 1; constant columns become 0.

    Args:
        columns: numbers.
        output_columns: where the results go; the same columns by default.
    """

    def __init__(self, columns: Sequence[str], output_columns: Sequence[str] | None = None) -> None:
        super().__init__(columns, output_columns)

    def _aggregations(self) -> list[AggregateFnV2[Any, Any]]:
        return [agg for name in self.columns for agg in (Min(name), Max(name))]

    def _transform_column(self, name: str, column: Any) -> Any:
        low, high = self.stats_[f"min({name})"], self.stats_[f"max({name})"]
        return _shifted(column, low, None if low is None else high - low)


class MaxAbsScaler(ColumnPreprocessor):
    """Divides by the largest absolute value; columns of zeros stay 0.

    Args:
        columns: numbers.
        output_columns: where the results go; the same columns by default.
    """

    def __init__(self, columns: Sequence[str], output_columns: Sequence[str] | None = None) -> None:
        super().__init__(columns, output_columns)

    def _aggregations(self) -> list[AggregateFnV2[Any, Any]]:
        return [AbsMax(name) for name in self.columns]

    def _transform_column(self, name: str, column: Any) -> Any:
        return _shifted(column, 0.0, self.stats_[f"abs_max({name})"])


class RobustScaler(ColumnPreprocessor):
    """Subtracts the median and divides by the distance of two quantiles, which outliers hardly move.

    Args:
        columns: numbers.
        quantile_range: the lower and the upper quantile.
        output_columns: where the results go; the same columns by default.
        quantile_precision: of the quantiles, which are approximate for more than twice as many values.
    """

    DEFAULT_QUANTILE_PRECISION = 800

    def __init__(
        self,
        columns: Sequence[str],
        quantile_range: tuple[float, float] = (0.25, 0.75),
        output_columns: Sequence[str] | None = None,
        quantile_precision: int = DEFAULT_QUANTILE_PRECISION,
    ) -> None:
        super().__init__(columns, output_columns)
        self.quantile_range = quantile_range
        self.quantile_precision = quantile_precision

    def _aggregations(self) -> list[AggregateFnV2[Any, Any]]:
        low, high = self.quantile_range
        return [
            ApproximateQuantile(name, [low, 0.5, high], self.quantile_precision, alias_name=name)
            for name in self.columns
        ]

    def _learn(self, results: dict[str, Any]) -> dict[str, Any]:
        stats: dict[str, Any] = {}
        for name in self.columns:
            quantiles = results[name] or (None, None, None)
            for kind, value in zip(("low_quantile", "median", "high_quantile"), quantiles, strict=True):
                stats[f"{kind}({name})"] = value
        return stats

    def _transform_column(self, name: str, column: Any) -> Any:
        low, high = self.stats_[f"low_quantile({name})"], self.stats_[f"high_quantile({name})"]
        return _shifted(column, self.stats_[f"median({name})"], None if low is None else high - low)


class Normalizer(ColumnPreprocessor):
    """Divides the columns of each row by their norm together; rows of zeros stay 0. Needs no fitting.

    Args:
        columns: numbers, which are a vector in each row.
        norm: "l1": the sum of absolute values; "l2": the root of the sum of squares; "max": the largest of them.
        output_columns: where the results go; the same columns by default.
    """

    _is_fittable = False
    _NORMS = {
        "l1": lambda values: np.abs(values).sum(axis=0),
        "l2": lambda values: np.sqrt((values**2).sum(axis=0)),
        "max": lambda values: np.abs(values).max(axis=0),
    }

    def __init__(
        self, columns: Sequence[str], norm: str = "l2", *, output_columns: Sequence[str] | None = None
    ) -> None:
        super().__init__(columns, output_columns)
        if norm not in self._NORMS:
            raise ValueError(f"norm {norm!r} is none of {', '.join(self._NORMS)}")
        self.norm = norm

    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        columns = [numbers_of(get_column(table, name)) for name in self.columns]
        values = np.stack([numbers for numbers, _ in columns])
        norms = self._NORMS[self.norm](values)
        norms[norms == 0] = 1.0
        for name, row, (_, nulls) in zip(self.output_columns, values / norms, columns, strict=True):
            table = set_column(table, name, column_of_numbers(row, nulls))
        return table


class PowerTransformer(ColumnPreprocessor):
    """Makes distributions more like a normal one by a power. Needs no fitting.

    Args:
        columns: numbers.
        power: of the transformation, its lambda.
        method: "yeo-johnson", or for positive numbers "box-cox".
        output_columns: where the results go; the same columns by default.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: Sequence[str],
        power: float,
        method: str = "yeo-johnson",
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        if method not in ("yeo-johnson", "box-cox"):
            raise ValueError(f"method {method!r} is none of yeo-johnson, box-cox")
        self.power = power
        self.method = method

    def _transform_column(self, name: str, column: Any) -> Any:
        values, nulls = numbers_of(column)
        transform = _box_cox if self.method == "box-cox" else _yeo_johnson
        with np.errstate(invalid="ignore", divide="ignore"):
            return column_of_numbers(transform(values, self.power), nulls)


def _box_cox(values: Any, power: float) -> Any:
    return np.log(values) if power == 0 else (values**power - 1) / power


def _yeo_johnson(values: Any, power: float) -> Any:
    upper = np.log1p(values) if power == 0 else ((values + 1) ** power - 1) / power
    lower = -np.log1p(-values) if power == 2 else -((1 - values) ** (2 - power) - 1) / (2 - power)
    return np.where(values >= 0, upper, lower)
