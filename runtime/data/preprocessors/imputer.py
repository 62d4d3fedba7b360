"""Values in place of missing ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from runtime.data.aggregate import AggregateFnV2, ApproximateTopK, Mean
from runtime.data.preprocessors.columns import ColumnPreprocessor


class SimpleImputer(ColumnPreprocessor):
    """Replaces nulls and NaNs.

    Args:
        columns: any values; numbers for the mean.
        strategy: "mean", "most_frequent" or "constant", which needs no fitting.
        fill_value: the constant.
        output_columns: where the results go; the same columns by default.
    """

    def __init__(
        self,
        columns: Sequence[str],
        strategy: str = "mean",
        fill_value: Any = None,
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        if strategy not in ("mean", "most_frequent", "constant"):
            raise ValueError(f"strategy {strategy!r} is none of mean, most_frequent, constant")
        if strategy == "constant" and fill_value is None:
            raise ValueError("the strategy 'constant' needs fill_value")
        self.strategy = strategy
        self.fill_value = fill_value
        self._is_fittable = strategy != "constant"

    def _aggregations(self) -> list[AggregateFnV2[Any, Any]]:
        if self.strategy == "mean":
            return [_MeanOfKnown(name) for name in self.columns]
        return [ApproximateTopK(name, 1, alias_name=f"most_frequent({name})") for name in self.columns]

    def _learn(self, results: dict[str, Any]) -> dict[str, Any]:
        if self.strategy == "mean":
            return results
        best = {name: results[f"most_frequent({name})"] for name in self.columns}
        return {f"most_frequent({name})": entry[0][name] if entry else None for name, entry in best.items()}

    def _transform_column(self, name: str, column: Any) -> Any:
        value = self.fill_value if self.strategy == "constant" else self.stats_[f"{self.strategy}({name})"]
        if value is None:
            raise ValueError(f"column {name!r} has no values to learn from: use the strategy 'constant'")
        kind = column.type.value_type if types.is_dictionary(column.type) else column.type
        if types.is_null(kind) or (types.is_integer(kind) and isinstance(value, float)):
            kind = pa.scalar(value).type
        column = column.cast(kind)
        if types.is_floating(kind):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
        return column.fill_null(pa.scalar(value, kind))


class _MeanOfKnown(Mean):
    """The mean without NaNs."""

    def _aggregation(self) -> Any:
        made = super()._aggregation()

        def prepare(column: Any) -> Any:
            numbers = made.prepare(column)
            return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)

        return dataclasses.replace(made, prepare=prepare)
