"""What preprocessors of columns share: statistics by aggregations, columns as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.data.aggregate import AggregateFnV2
from runtime.data.preprocessor import Preprocessor, get_column, output_columns_of, set_column

Numbers = npt.NDArray[np.float64]


class ColumnPreprocessor(Preprocessor):
    """A preprocessor that makes one column of each of some columns, after one pass of aggregations over the data."""

    def __init__(self, columns: Sequence[str], output_columns: Sequence[str] | None) -> None:
        if isinstance(columns, str):
            raise TypeError(f"columns is a list of names, not the name {columns!r}")
        self.columns = list(columns)
        self.output_columns = output_columns_of(columns, output_columns)

    def _aggregations(self) -> list[AggregateFnV2[Any, Any]]:
        """What is learnt from the data set."""
        return []

    def _learn(self, results: dict[str, Any]) -> dict[str, Any]:
        """What is kept of the aggregations' results, by their names."""
        return results

    def _fit(self, ds: Any) -> Preprocessor:
        self.stats_ = self._learn(ds.aggregate(*self._aggregations()))
        return self

    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        made = [self._transform_column(name, get_column(table, name)) for name in self.columns]
        for name, column in zip(self.output_columns, made, strict=True):
            table = set_column(table, name, column)
        return table

    def _transform_column(self, name: str, column: Any) -> Any:
        """The new column of a column."""
        raise NotImplementedError


def numbers_of(column: Any) -> tuple[Numbers, npt.NDArray[np.bool_] | None]:
    """A column as floats, and which of them are null, if any; nulls are NaN."""
    floats = column.cast(pa.float64())
    if not column.null_count:
        return np.asarray(floats.to_numpy()), None
    return np.asarray(floats.fill_null(np.nan).to_numpy()), np.asarray(column.is_null().to_numpy())


def column_of_numbers(values: Any, nulls: Any) -> pa.Array:
    """Numbers with nulls where they were."""
    return pa.array(values, mask=nulls, from_pandas=False)
