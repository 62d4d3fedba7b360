"""Several columns as one of vectors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from runtime.data._block import batch, tensor
from runtime.data.preprocessor import Preprocessor, set_column

logger = logging.getLogger(__name__)


class Concatenator(Preprocessor):
    """Joins columns of numbers, and of vectors, to one column of vectors and drops them. Needs no fitting.

    Args:
        columns: in the order of the vectors' elements.
        output_column_name: of the vectors.
        dtype: of the elements; by default one that holds all.
        raise_if_missing: whether a missing column is an error; otherwise it is left out.
        flatten: whether columns of lists and tensors with more dimensions are made vectors first.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: Sequence[str],
        output_column_name: str = "concat_out",
        dtype: Any = None,
        raise_if_missing: bool = False,
        flatten: bool = False,
    ) -> None:
        if len(set(columns)) < len(columns):
            raise ValueError(f"a column is named twice: {list(columns)}")
        self.columns = list(columns)
        self.output_column_name = output_column_name
        self.dtype = dtype
        self.raise_if_missing = raise_if_missing
        self.flatten = flatten

    def get_output_columns(self) -> list[str]:
        """The column of vectors."""
        return [self.output_column_name]

    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        missing = [name for name in self.columns if name not in table.column_names]
        if missing and self.raise_if_missing:
            raise ValueError(
                f"there is no column {missing[0]!r}; columns are {', '.join(table.column_names)}"
            )
        names = [name for name in self.columns if name not in missing]
        if not names:
            raise ValueError(f"there is none of the columns {', '.join(self.columns)}")
        parts = [self._matrix(name, table.column(name)) for name in names]
        matrix = np.concatenate(parts, axis=1)
        vectors = tensor.from_numpy(matrix if self.dtype is None else matrix.astype(self.dtype))
        kept = [name for name in table.column_names if name not in names]
        rest = table.select(kept) if kept else batch.empty_columns(table.num_rows)
        return set_column(rest, self.output_column_name, vectors)

    def _matrix(self, name: str, column: Any) -> Any:
        kind = column.type
        if tensor.is_fixed(kind):
            array = tensor.to_numpy(column)
        elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            array = np.array(column.to_pylist())
        else:
            array = batch.column_to_numpy(column)
        if array.dtype == object:
            raise TypeError(f"column {name!r} of type {kind} has no numbers, or rows of different lengths")
        if array.ndim > 2 and not self.flatten:
            raise ValueError(f"rows of column {name!r} have more than one dimension: set flatten=True")
        return array.reshape(len(array), -1) if len(array) else np.empty((0, _width(kind)), array.dtype)


def _width(kind: pa.DataType) -> int:
    """Elements of a row of a column without rows."""
    if tensor.is_fixed(kind):
        return int(np.prod(kind.shape))
    return kind.list_size if types.is_fixed_size_list(kind) else 1
