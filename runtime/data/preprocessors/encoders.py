"""Categories as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from runtime.data._block import tensor
from runtime.data._block.states import one_chunk
from runtime.data.aggregate import AggregateFnV2, ApproximateTopK, Unique
from runtime.data.preprocessor import Preprocessor, get_column, set_column
from runtime.data.preprocessors.columns import ColumnPreprocessor


def _numbered(values: Sequence[Any]) -> dict[Any, int]:
    """Numbers for categories in their order; null is no category. Lists are categories as tuples."""
    known = {tuple(value) if isinstance(value, list) else value for value in values if value is not None}
    try:
        ordered = sorted(known)
    except TypeError:  # of several types
        ordered = sorted(known, key=lambda value: (type(value).__name__, repr(value)))
    return {value: number for number, value in enumerate(ordered)}


def _codes(column: Any, numbers: Mapping[Any, int]) -> Any:
    """The number of each value's category; null for others."""
    column = one_chunk(column)
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_nested(column.type):
        keys = [None if value is None else tuple(value) for value in column.to_pylist()]
        return pa.array([numbers.get(key) for key in keys], pa.int64())
    if not numbers or types.is_null(column.type):
        return pa.nulls(len(column), pa.int64())
    categories = pa.array(list(numbers), column.type)
    codes = pc.index_in(column, value_set=categories).cast(pa.int64())
    return pc.if_else(column.is_null(), pa.scalar(None, pa.int64()), codes)


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


class _Encoder(ColumnPreprocessor):
    """Learns the categories of columns: `stats_["unique_values(x)"]` has their numbers."""

    encode_lists = False
    max_categories: dict[str, int]

    def _aggregations(self) -> list[AggregateFnV2[Any, Any]]:
        apart = self.encode_lists
        return [
            ApproximateTopK(name, self.max_categories[name], alias_name=name, encode_lists=apart)
            if name in self.max_categories
            else Unique(name, alias_name=name, encode_lists=apart)
            for name in self.columns
        ]

    def _learn(self, results: dict[str, Any]) -> dict[str, Any]:
        stats = {}
        for name in self.columns:
            values = results[name] or []
            if name in self.max_categories:
                values = [entry[name] for entry in values]
            if None in values:
                raise ValueError(f"column {name!r} has nulls, which are no category: impute them first")
            stats[f"unique_values({name})"] = _numbered(values)
        return stats

    def _numbers(self, name: str) -> dict[Any, int]:
        numbers: dict[Any, int] = self.stats_[f"unique_values({name})"]
        return numbers


class OrdinalEncoder(_Encoder):
    """Replaces categories by their number in sorted order. Null and categories that were not learnt are null.

    Args:
        columns: categories, or lists of them.
        encode_lists: whether the elements of lists are the categories; otherwise whole lists are.
        output_columns: where the results go; the same columns by default.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        encode_lists: bool = True,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self.encode_lists = encode_lists
        self.max_categories = {}

    def _transform_column(self, name: str, column: Any) -> Any:
        if not (self.encode_lists and _is_list(column.type)):
            return _codes(column, self._numbers(name))
        lists = one_chunk(column).cast(pa.large_list(column.type.value_type))
        codes = _codes(lists.flatten(), self._numbers(name))
        sizes = pc.list_value_length(lists).fill_null(0).to_numpy()
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
        made = pa.LargeListArray.from_arrays(
            offsets, codes, mask=lists.is_null() if lists.null_count else None
        )
        return made.cast(pa.list_(pa.int64()))


class OneHotEncoder(_Encoder):
    """Replaces a category by a vector with a 1 at its number; for others, and null, all are 0.

    Args:
        columns: categories.
        max_categories: for some columns, how many of the most frequent categories are learnt.
        output_columns: where the results go; the same columns by default.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        max_categories: Mapping[str, int] | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self.max_categories = dict(max_categories or {})

    def _transform_column(self, name: str, column: Any) -> Any:
        numbers = self._numbers(name)
        codes = _codes(column, numbers).fill_null(-1).to_numpy()
        vectors = np.zeros((len(codes), len(numbers)), np.uint8)
        known = np.flatnonzero(codes >= 0)
        vectors[known, codes[known]] = 1
        return tensor.from_numpy(vectors)


class MultiHotEncoder(_Encoder):
    """Replaces a list of categories by a vector of how often each is in it.

    Args:
        columns: lists of categories; other values count as lists of one.
        max_categories: for some columns, how many of the most frequent categories are learnt.
        output_columns: where the results go; the same columns by default.
    """

    encode_lists = True

    def __init__(
        self,
        columns: Sequence[str],
        *,
        max_categories: Mapping[str, int] | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self.max_categories = dict(max_categories or {})

    def _transform_column(self, name: str, column: Any) -> Any:
        numbers = self._numbers(name)
        array = one_chunk(column)
        if _is_list(array.type):
            rows = pc.list_parent_indices(array).to_numpy()
            values = array.flatten()
        else:
            rows, values = np.arange(len(array)), array
        codes = _codes(values, numbers).fill_null(-1).to_numpy()
        vectors = np.zeros((len(array), len(numbers)), np.int64)
        known = codes >= 0
        np.add.at(vectors, (rows[known], codes[known]), 1)
        return tensor.from_numpy(vectors)


class LabelEncoder(_Encoder):
    """Replaces labels by their number in sorted order.

    Args:
        label_column: the labels.
        output_column: where the numbers go; the same column by default.
    """

    def __init__(self, label_column: str, *, output_column: str | None = None) -> None:
        super().__init__([label_column], None if output_column is None else [output_column])
        self.label_column = label_column
        self.output_column = output_column or label_column
        self.max_categories = {}

    def _parameters(self) -> dict[str, Any]:
        return {"label_column": self.label_column, "output_column": self.output_column}

    def _transform_column(self, name: str, column: Any) -> Any:
        return _codes(column, self._numbers(name))

    def inverse_transform(self, ds: Any) -> Any:
        """The data set with labels in place of numbers.

        Raises:
            PreprocessorNotFittedException: it was not fitted.
        """
        self._check_fitted()
        return ds.map_batches(self._labels, batch_size=None, batch_format="pyarrow")

    def _labels(self, table: pa.Table) -> pa.Table:
        labels = pa.array(list(self._numbers(self.label_column)))
        codes = get_column(table, self.output_column)
        return set_column(table, self.label_column, labels.take(one_chunk(codes)))


class Categorizer(_Encoder):
    """Makes columns of categories: dictionaries in Arrow, `Categorical` in pandas.

    Args:
        columns: any values.
        dtypes: for some columns, a `pandas.CategoricalDtype` with the categories; those of others are learnt.
        output_columns: where the results go; the same columns by default.
    """

    def __init__(
        self,
        columns: Sequence[str],
        dtypes: Mapping[str, Any] | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self.dtypes = dict(dtypes or {})
        self.max_categories = {}

    def _aggregations(self) -> list[AggregateFnV2[Any, Any]]:
        return [
            Unique(name, ignore_nulls=True, alias_name=name)
            for name in self.columns
            if name not in self.dtypes
        ]

    def _fit(self, ds: Any) -> Preprocessor:
        aggregations = self._aggregations()
        self.stats_ = self._learn(ds.aggregate(*aggregations) if aggregations else {})
        return self

    def _learn(self, results: dict[str, Any]) -> dict[str, Any]:
        given = {name: list(dtype.categories) for name, dtype in self.dtypes.items()}
        learnt = {name: list(_numbered(values or [])) for name, values in results.items()}
        return {f"unique_values({name})": {**learnt, **given}[name] for name in self.columns}

    def _transform_column(self, name: str, column: Any) -> Any:
        categories = self.stats_[f"unique_values({name})"]
        codes = _codes(column, {value: number for number, value in enumerate(categories)})
        kind = column.type.value_type if types.is_dictionary(column.type) else column.type
        return pa.DictionaryArray.from_arrays(codes.cast(pa.int32()), pa.array(categories, kind))
