"""Arrow's view types (string_view and the like), for which pyarrow lacks take, sort, group-by and join.

Files of DuckDB, Polars and DataFusion have them. They are cast where data comes in, so blocks never hold any.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as types


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type with strings, binaries and lists in the place of views of them, also inside of nested types."""
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if not types.is_nested(kind):
        return kind
    if types.is_struct(kind):
        fields = [_plain_field(kind.field(index)) for index in range(kind.num_fields)]
        return pa.struct(fields)
    if types.is_list(kind) or types.is_list_view(kind):
        return pa.list_(_plain_field(kind.value_field))
    if types.is_large_list(kind) or types.is_large_list_view(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    if types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field), kind.keys_sorted)
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the table that `without_views` makes."""
    fields = [_plain_field(field) for field in schema]
    return pa.schema(fields, schema.metadata)


def without_views(table: pa.Table) -> pa.Table:
    """The table itself if it has no views; otherwise with those columns cast."""
    for index, field in enumerate(table.schema):
        plain = plain_type(field.type)
        if plain != field.type:
            table = table.set_column(index, field.with_type(plain), table.column(index).cast(plain))
    return table
