"""One schema for blocks whose schemas differ, or an error that says which column, types, operator, file and row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as types

from runtime.data._block import batch, objects, tensor


@dataclass(frozen=True, slots=True)
class Source:
    """Where a block comes from, as far as it is known."""

    operator: str | None = None
    """The operator that made it, e.g. "MapBatches(tokenize)"."""
    file: str | None = None
    row: int | None = None
    """Number of its first row in the file or the operator's output."""

    def __str__(self) -> str:
        parts = [
            f"from {self.operator}" if self.operator else "",
            f"file {self.file}" if self.file else "",
            "" if self.row is None else f"from row {self.row} on",
        ]
        return ", ".join(part for part in parts if part) or "unknown source"


class SchemaMismatchError(TypeError):
    """A column has types in two blocks that no common type holds.

    Attributes:
        column: its name.
        types: both types, as text.
        sources: where both blocks come from.
    """

    def __init__(self, column: str, types: tuple[str, str], sources: tuple[Source, Source]) -> None:
        super().__init__(column, types, sources)
        self.column = column
        self.types = types
        self.sources = sources

    def __str__(self) -> str:
        return (
            f"column {self.column!r} has two types that do not go together:\n"
            f"  {self.types[0]} ({self.sources[0]})\n"
            f"  {self.types[1]} ({self.sources[1]})\n"
            f"Cast the column to one type where it is read or made."
        )


def unify(schemas: Iterable[tuple[pa.Schema, Source]]) -> pa.Schema:
    """The schema that holds the rows of all: columns in order of appearance, types widened.

    Columns that a block lacks are null in its rows. Integers widen to larger ones and to float64, dates to
    timestamps, tensors of several shapes to ragged ones, a column of nulls to any type, Python objects take all.

    Raises:
        SchemaMismatchError: a column's types have no common one.
    """
    fields: dict[str, tuple[pa.Field, Source]] = {}
    last: pa.Schema | None = None
    for schema, source in schemas:
        if last is not None and schema.equals(last):
            continue
        last = schema
        for field in schema:
            known = fields.get(field.name)
            if known is None:
                fields[field.name] = (field, source)
                continue
            kind = common_type(known[0].type, field.type)
            if kind is None:
                names = (str(known[0].type), str(field.type))
                raise SchemaMismatchError(field.name, names, (known[1], source))
            if kind != known[0].type:
                origin = source if kind == field.type else known[1]
                fields[field.name] = (pa.field(field.name, kind), origin)
    return pa.schema([field.remove_metadata().with_nullable(True) for field, _ in fields.values()])


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds the values of both; None if there is none."""
    if left == right or types.is_null(right):
        return left
    if types.is_null(left):
        return right
    if objects.is_objects(left) or objects.is_objects(right):
        return objects.ObjectType()
    if tensor.is_tensor(left) or tensor.is_tensor(right):
        return _common_tensor(left, right)
    if types.is_dictionary(left) or types.is_dictionary(right):
        plain = [kind.value_type if types.is_dictionary(kind) else kind for kind in (left, right)]
        return common_type(*plain)
    if types.is_struct(left) and types.is_struct(right):
        return _common_struct(left, right)
    if _is_list(left) and _is_list(right):
        return _common_list(left, right)
    if types.is_timestamp(left) and types.is_timestamp(right) and (left.tz is None) != (right.tz is None):
        return None
    for one, other in ((left, right), (right, left)):
        if types.is_date(one) and types.is_timestamp(other) and other.tz is None:
            return other
    try:
        fields = pa.unify_schemas(
            [pa.schema([("x", left)]), pa.schema([("x", right)])], promote_options="permissive"
        )
    except (pa.ArrowTypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    kind = fields.field("x").type
    if types.is_floating(kind) and types.is_integer(left) != types.is_integer(right):
        return pa.float64()
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _common_list(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    value = common_type(left.value_type, right.value_type)
    if value is None:
        return None
    if (
        types.is_fixed_size_list(left)
        and types.is_fixed_size_list(right)
        and left.list_size == right.list_size
    ):
        return pa.list_(value, left.list_size)
    large = types.is_large_list(left) or types.is_large_list(right)
    return pa.large_list(value) if large else pa.list_(value)


def _common_struct(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    kinds = {field.name: field.type for field in left}
    for field in right:
        kind = common_type(kinds[field.name], field.type) if field.name in kinds else field.type
        if kind is None:
            return None
        kinds[field.name] = kind
    return pa.struct(list(kinds.items()))


def _common_tensor(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if not (tensor.is_tensor(left) and tensor.is_tensor(right)):
        return None
    value = common_type(left.value_type, right.value_type)
    dims = [kind.ndim if tensor.is_ragged(kind) else len(kind.shape) for kind in (left, right)]
    if value is None or dims[0] != dims[1]:
        return None
    if tensor.is_fixed(left) and tensor.is_fixed(right) and left.shape == right.shape:
        return pa.fixed_shape_tensor(value, left.shape)
    return tensor.RaggedTensorType(value, dims[0])


def align(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table's rows in a schema that `unify` made of its own and others."""
    if table.schema.equals(schema):
        return table
    columns = [
        convert(table.column(field.name), field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    if not columns:
        return batch.empty_columns(table.num_rows)
    return pa.table(columns, schema=schema)


def convert(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """The column in a type that holds all its values."""
    if column.type == kind:
        return column
    if types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if objects.is_objects(kind):
        return objects.from_objects(batch.column_to_list(column))
    if tensor.is_tensor(kind):
        return tensor.convert(column, kind)
    if types.is_struct(kind):
        return _convert_struct(column, kind)
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(kind)


def _convert_struct(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    chunks = []
    for chunk in column.chunks:
        fields = {field.name: chunk.field(index) for index, field in enumerate(chunk.type)}
        parts = [
            pa.nulls(len(chunk), field.type)
            if field.name not in fields
            else _one_chunk(convert(pa.chunked_array([fields[field.name]]), field.type))
            for field in kind
        ]
        chunks.append(pa.StructArray.from_arrays(parts, fields=list(kind), mask=chunk.is_null()))
    return pa.chunked_array(chunks, kind)


def _one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def concat(tables: Sequence[pa.Table], sources: Sequence[Source] = ()) -> pa.Table:
    """The rows of all tables in order, in one schema; without copies where their schemas are equal.

    Args:
        tables: at least one.
        sources: where each comes from, for the error.

    Raises:
        SchemaMismatchError: see `unify`.
    """
    if len(tables) == 1:
        return tables[0]
    schema = tables[0].schema
    if not all(table.schema.equals(schema) for table in tables[1:]):
        unknown = Source()
        known = sources or [unknown] * len(tables)
        schema = unify((table.schema, source) for table, source in zip(tables, known, strict=True))
        tables = [align(table, schema) for table in tables]
    if not len(schema):  # pyarrow loses the rows of tables without columns
        return batch.empty_columns(sum(table.num_rows for table in tables))
    return pa.concat_tables(tables)
