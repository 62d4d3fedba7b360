"""Functions of expressions: Arrow's by name, and those that Arrow lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from runtime.data._block import batch, tensor
from runtime.data._block.states import one_chunk


def call(name: str, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """Calls a function on columns, scalars or Arrow's expressions.

    Raises:
        NotImplementedError: it is not one of Arrow's and was called on Arrow's expressions.
    """
    expressions = any(isinstance(arg, pc.Expression) for arg in args)
    own = _OWN.get(name)
    if own is None or (expressions and hasattr(pc, name)):
        if not hasattr(pc, name):
            raise TypeError(f"{name!r} is no function of pyarrow.compute")
        function = getattr(pc, name)
        try:
            return function(*args, **options)
        except pa.ArrowInvalid:
            if expressions or not any(types.is_decimal128(arg.type) for arg in args):
                raise
            return function(*map(_wider, args), **options)  # the result may have more than 38 digits
    if expressions:
        raise NotImplementedError(name)
    return own(*(one_chunk(arg) for arg in args), **options)


def _wider(value: Any) -> Any:
    """A decimal with room for 76 digits; anything else as it is."""
    kind = value.type
    return value.cast(pa.decimal256(kind.precision, kind.scale)) if types.is_decimal128(kind) else value


def _is_integer(value: Any) -> bool:
    return bool(types.is_integer(value.type))


def _as_float(value: Any) -> Any:
    return value.cast(pa.float64()) if types.is_integer(value.type) else value


def _floor_divide(left: Any, right: Any) -> Any:
    """As Python's //: rounds down. Integers by zero are null."""
    if _is_integer(left) and _is_integer(right):
        right = pc.if_else(pc.equal(right, 0), None, right)
        quotient = pc.divide(left, right)
        inexact = pc.not_equal(pc.multiply(quotient, right), left)
        negative = pc.not_equal(pc.less(left, 0), pc.less(right, 0))
        return pc.if_else(pc.and_(inexact, negative), pc.subtract(quotient, 1), quotient)
    return pc.floor(pc.divide(_as_float(left), _as_float(right)))


def _modulo(left: Any, right: Any) -> Any:
    """As Python's %: has the sign of the right side."""
    return pc.subtract(left, pc.multiply(_floor_divide(left, right), right))


def _is_in(column: Any, values: Any) -> Any:
    if isinstance(values, pa.Scalar):
        values = values.values if hasattr(values, "values") else pa.array([values.as_py()])
    if isinstance(column, pa.Scalar):
        return pc.is_in(pa.array([column.as_py()], column.type), value_set=values)[0]
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not column.type.equals(values.type) and not types.is_null(values.type):
        values = values.cast(column.type)
    return pc.is_in(column, value_set=values)


def _list_get(lists: Any, index: int) -> Any:
    """The element at an index, from the end if it is negative; null where there is none."""
    lists = _var_lists(lists)
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    place = np.full(len(sizes), index) if index >= 0 else sizes + index
    there = (place >= 0) & (place < sizes)
    positions = lists.offsets.to_numpy()[:-1] + place
    return lists.values.take(pa.array(np.where(there, positions, 0), mask=~there))


def _var_lists(lists: Any) -> Any:
    """Lists with offsets."""
    if types.is_fixed_size_list(lists.type):
        return lists.cast(pa.large_list(lists.type.value_type))
    return lists


def _list_slice(
    lists: Any, start: int | None = None, stop: int | None = None, step: int | None = None
) -> Any:
    if (start or 0) >= 0 and (stop is None or stop >= 0) and (step or 1) > 0:
        sliced: Any = pc.list_slice(lists, start or 0, stop, step or 1, return_fixed_size_list=False)
        return sliced
    cut = slice(start, stop, step)
    return pa.array([None if row is None else row[cut] for row in lists.to_pylist()], lists.type)


def _list_sort(lists: Any, order: str = "ascending", null_placement: str = "at_end") -> Any:
    lists = _var_lists(lists)
    parents = pc.list_parent_indices(lists)
    values = lists.flatten()
    keys = pa.table({"list": parents, "null": pc.is_null(values).cast(pa.int8()), "value": values})
    nulls = "ascending" if null_placement == "at_end" else "descending"
    found = pc.sort_indices(keys, sort_keys=[("list", "ascending"), ("null", nulls), ("value", order)])
    return _relisted(lists, values.take(found))


def _relisted(lists: Any, values: Any, sizes: Any = None) -> Any:
    """Lists with the nulls of others: of their lengths, or of given ones."""
    if sizes is None:
        sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    mask = lists.is_null() if lists.null_count else None
    if types.is_large_list(lists.type):
        return pa.LargeListArray.from_arrays(pa.array(offsets), values, mask=mask)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=mask)


def _list_flatten(lists: Any) -> Any:
    """Lists of lists as lists of their elements."""
    lists = _var_lists(lists)
    inner = lists.flatten()
    if not (
        types.is_list(inner.type) or types.is_large_list(inner.type) or types.is_fixed_size_list(inner.type)
    ):
        raise TypeError(f"flatten needs lists of lists, not {lists.type}")
    lengths = pc.fill_null(pc.list_value_length(inner), 0).to_numpy()
    sizes = np.bincount(pc.list_parent_indices(lists).to_numpy(), weights=lengths, minlength=len(lists))
    return _relisted(lists, inner.flatten(), sizes.astype(np.int64))


def _map_part(maps: Any, items: bool) -> Any:
    offsets = maps.offsets.to_numpy()
    entries = maps.items if items else maps.keys
    return _relisted(maps, entries.slice(offsets[0], offsets[-1] - offsets[0]), np.diff(offsets))


def _to_list(column: Any) -> Any:
    """Tensors as nested lists; other lists as they are."""
    if not tensor.is_tensor(column.type):
        return column
    kind = column.type.value_type
    for _ in range(column.type.ndim if tensor.is_ragged(column.type) else len(column.type.shape)):
        kind = pa.list_(kind)
    rows = batch.column_to_list(pa.chunked_array([column]))
    return pa.array([None if row is None else row.tolist() for row in rows], kind)


def _logical(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Of three values: a literal None is an unknown truth value, not a value of another type."""

    def apply(left: Any, right: Any) -> Any:
        return function(*(arg.cast(pa.bool_()) if types.is_null(arg.type) else arg for arg in (left, right)))

    return apply


def _as_type(column: Any, kind: pa.DataType, safe: bool) -> Any:
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(kind, safe=safe)


_OWN: dict[str, Callable[..., Any]] = {
    "and_kleene": _logical(pc.and_kleene),
    "or_kleene": _logical(pc.or_kleene),
    "floor_divide": _floor_divide,
    "modulo": _modulo,
    "is_in_values": _is_in,
    "list_get": _list_get,
    "list_cut": _list_slice,
    "list_sorted": _list_sort,
    "list_join": _list_flatten,
    "map_keys": lambda maps: _map_part(maps, items=False),
    "map_values": lambda maps: _map_part(maps, items=True),
    "to_list": _to_list,
    "as_type": _as_type,
}
