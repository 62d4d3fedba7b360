"""The base of sources that read tables of a library: their parts, columns, filters and limits."""

from __future__ import annotations

import copy
import functools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from runtime.data.io import blocks
from runtime.data.io.files import least, target_bytes
from runtime.data.io.grouping import group
from runtime.data.io.interfaces import BlockMetadata, Datasource, Predicate, ReadTask

if TYPE_CHECKING:
    import pyarrow as pa


class TableDatasource(Datasource):
    """Parts of a table, each of which a task can read by itself.

    A subclass has `_schema`, the Arrow schema of all columns, and defines `_parts`, `_scan` and `_takes`.
    """

    _schema: pa.Schema

    def __init__(self) -> None:
        self._columns: list[str] | None = None
        self._predicate: Predicate | None = None
        self._limit: int | None = None

    @abstractmethod
    def _parts(self) -> Sequence[tuple[Any, int, int | None]]:
        """The parts: what the task gets, bytes in memory, and rows where they are known."""

    @abstractmethod
    def _scan(self, parts: Sequence[Any], columns: list[str]) -> Iterator[pa.Table]:
        """The rows of parts, with these columns; of those that the predicate rules out, as few as is easy."""

    @abstractmethod
    def _takes(self, predicate: Predicate) -> bool:
        """Whether the library can skip rows by this expression."""

    def with_columns(self, columns: list[str]) -> Self:
        """A source that reads these columns, in this order."""
        return self._changed(_columns=list(columns))

    def with_predicate(self, predicate: Predicate) -> Self | None:
        """A source that yields exactly the rows for which the expression is true; None if the library cannot help."""
        if predicate.to_arrow() is None or not self._takes(predicate):
            return None
        return self._changed(_predicate=predicate if self._predicate is None else self._predicate & predicate)

    def with_limit(self, limit: int) -> Self:
        """A source whose tasks stop after `limit` rows each."""
        return self._changed(_limit=limit if self._limit is None else min(limit, self._limit))

    def row_count(self) -> int | None:
        """The number of rows, if the table tells it."""
        counts = [rows for _, _, rows in self._parts()]
        if self._predicate is not None or None in counts:
            return None
        total = sum(rows or 0 for rows in counts)
        return total if self._limit is None else min(total, self._limit)

    def estimate_inmemory_data_size(self) -> int | None:
        return int(sum(size for _, size, _ in self._parts()) * self._share())

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        parts = self._parts()
        rows = least(self._limit, per_task_row_limit)
        schema = self._schema if self._columns is None else selected(self._schema, self._columns)
        read = functools.partial(self._read, target_bytes(data_context), rows)
        tasks = []
        for indices in group([size for _, size, _ in parts], parallelism):
            mine = parts[indices.start : indices.stop]
            known = [count for _, _, count in mine]
            exact = None not in known and self._predicate is None and rows is None
            metadata = BlockMetadata(
                sum(count or 0 for count in known) if exact else None,
                int(sum(size for _, size, _ in mine) * self._share()),
            )
            call: Callable[[], Iterator[pa.Table]] = functools.partial(read, [part for part, _, _ in mine])
            tasks.append(ReadTask(call, metadata, schema, rows))
        return tasks

    def _read(self, block_bytes: int, rows: int | None, parts: Sequence[Any]) -> Iterator[pa.Table]:
        return blocks.sized(self._tables(parts), block_bytes, rows)

    def _tables(self, parts: Sequence[Any]) -> Iterator[pa.Table]:
        wanted = self._schema.names if self._columns is None else self._columns
        used = [*wanted]
        if self._predicate is not None:
            used += sorted(self._predicate.columns() - set(wanted))
        given = False
        for table in self._scan(parts, used):
            if self._predicate is not None:
                # Libraries differ in what they do with NaN and null, so that they only leave out what they surely may.
                table = table.filter(self._predicate.evaluate(table))
            given = True
            yield table.select(wanted)
        if not given:
            yield selected(self._schema, wanted).empty_table()

    def _share(self) -> float:
        """The part of the columns that is read."""
        return 1.0 if self._columns is None else len(self._columns) / max(1, len(self._schema.names))

    def _changed(self, **changes: Any) -> Self:
        other = copy.copy(self)
        for name, value in changes.items():
            setattr(other, name, value)
        return other


def selected(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """These columns of a schema.

    Raises:
        KeyError: It has no such column.
    """
    import pyarrow as pa

    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise KeyError(f"There is no column {missing[0]!r}, only {', '.join(schema.names)}.")
    return pa.schema([schema.field(name) for name in columns])


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with exactly the columns of a schema, in its types; those that it lacks are null.

    Raises:
        ValueError: It has a column that the schema lacks, or values that do not fit.
    """
    import pyarrow as pa

    from runtime.data._block.schema_diff import convert

    unknown = [name for name in table.column_names if name not in schema.names]
    if unknown:
        raise ValueError(f"Column {unknown[0]!r} is not in the schema, which has {', '.join(schema.names)}.")
    columns = [
        convert(table[field.name], field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
