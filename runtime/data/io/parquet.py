"""Parquet: only the wanted columns, row groups and rows are read; counts come from the footers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from runtime.data.io import blocks, errors
from runtime.data.io.files import PATH_COLUMN, FileBasedDatasource, constant, least, target_bytes
from runtime.data.io.filesystems import is_local
from runtime.data.io.grouping import group
from runtime.data.io.interfaces import BlockMetadata, Predicate, ReadTask
from runtime.data.io.partitioning import arrow_type
from runtime.data.io.paths import File
from runtime.data.io.retries import Retries

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as pads
    import pyarrow.parquet as pq

_FOOTER_THREADS = 16
_FOOTERS_BEFORE_READING = 256
"""In sets of more files the driver reads this many footers and takes the other files to be like them."""

_SCAN_OPTIONS = frozenset(
    {"batch_size", "use_threads", "batch_readahead", "fragment_readahead", "cache_metadata"}
)
_BATCH_BYTES = 32 * 1024 * 1024
_MAX_BATCH_ROWS = 131_072
_MIN_BATCH_ROWS = 1024


class _Part(NamedTuple):
    """Some row groups of a file; None for all of a file whose footer was not read."""

    file: File
    row_groups: tuple[int, ...] | None
    rows: int | None
    size_bytes: int


class ParquetDatasource(FileBasedDatasource):
    """Rows of Parquet files.

    Args:
        columns: The columns to read, in this order; values of folders and "path" may be among them.
        schema: The schema by which files are read: columns that a file lacks are null, others are cast. By default the
            one that all files agree on, with wider numbers where they differ.
        arrow_parquet_args: `batch_size` and `use_threads` of `pyarrow.parquet.ParquetFile.iter_batches`.
    """

    _SIZE_RATIO = 4.0

    def __init__(
        self,
        paths: Any,
        *,
        columns: Sequence[str] | None = None,
        arrow_parquet_args: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        arguments = dict(arrow_parquet_args or {})
        options.setdefault("schema", arguments.pop("schema", None))
        arguments.pop("dataset_kwargs", None)
        unknown = sorted(set(arguments) - _SCAN_OPTIONS)
        if "filter" in unknown:
            raise ValueError(
                "read_parquet takes no filter=: read_parquet(...).filter(expr=...) is pushed down."
            )
        if unknown:
            raise TypeError(
                f"read_parquet does not know the arguments {unknown}; it passes on {sorted(_SCAN_OPTIONS)}."
            )
        super().__init__(paths, **options)
        self._scan_options = arguments
        self._predicate: Predicate | None = None
        self._footers: dict[str, pq.FileMetaData] = {}
        self._given_schema = self._schema
        if columns is not None:
            self._columns = list(columns)

    def with_columns(self, columns: list[str]) -> Self:
        """A source that reads these columns, in this order."""
        return self._changed(_columns=list(columns))

    def with_predicate(self, predicate: Predicate) -> Self | None:
        """A source that yields exactly the rows for which the expression is true. It skips row groups by statistics.

        None if Arrow cannot evaluate the expression, so that it has to be a step of the plan.
        """
        if predicate.to_arrow() is None:
            return None
        return self._changed(_predicate=predicate if self._predicate is None else self._predicate & predicate)

    def row_count(self) -> int | None:
        """The number of rows, from the footers; None with a predicate, which needs the rows themselves."""
        if self._predicate is not None:
            return None
        rows = int(sum(footer.num_rows for footer in self._read_footers(self._files)))
        return rows if self._limit is None else min(rows, self._limit)

    def estimate_inmemory_data_size(self) -> int | None:
        return sum(part.size_bytes for part in self._parts(self._files))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        rows = least(self._limit, per_task_row_limit)
        parts = self._parts(self._ordered())
        if rows is not None and self._predicate is None and self._limit is not None:
            parts = _enough(parts, self._limit)
        schema = self._file_schema()
        retries = Retries.of(data_context)
        reader = self._changed(_files=(), _footers={}, _schema=schema, _retries=retries)
        size = target_bytes(data_context)
        block_schema = self._block_schema()
        tasks = []
        for indices in group([part.size_bytes for part in parts], parallelism):
            mine = parts[indices.start : indices.stop]
            known = [part.rows for part in mine]
            total = (
                None
                if None in known or self._predicate is not None
                else sum(n for n in known if n is not None)
            )
            tasks.append(
                ReadTask(
                    functools.partial(reader._read_parts, _merged(mine), size, rows),
                    BlockMetadata(
                        num_rows=total if total is None or rows is None else min(total, rows),
                        size_bytes=sum(part.size_bytes for part in mine),
                        input_files=tuple(dict.fromkeys(part.file.path for part in mine)),
                    ),
                    block_schema,
                    rows,
                )
            )
        return tasks

    def _block_schema(self) -> pa.Schema | None:
        import pyarrow as pa

        of_files = self._file_schema()
        if of_files is None or not self._files:
            return of_files
        schema = self._full_schema(of_files, self._files[0].path)
        if self._columns is None:
            return schema
        return pa.schema([schema.field(name) for name in self._columns if name in schema.names])

    def _file_schema(self) -> pa.Schema | None:
        """The schema that all files whose footers are known agree on."""
        import pyarrow as pa

        if self._given_schema is not None or not self._files:
            return self._given_schema
        from runtime.data._block.views import plain_schema

        schema: pa.Schema | None = None
        for file, footer in zip(
            self._sample(self._files), self._read_footers(self._sample(self._files)), strict=True
        ):
            own = plain_schema(footer.schema.to_arrow_schema().remove_metadata())
            if schema is None or schema.equals(own):
                schema = own if schema is None else schema
                continue
            try:
                schema = pa.unify_schemas([schema, own], promote_options="permissive")
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                reason = f"its columns do not fit those of {self._files[0].path}: {error}"
                raise errors.FileReadError(file.path, reason) from error
        return schema

    def _full_schema(self, schema: pa.Schema, path: str) -> pa.Schema:
        """With the columns that the path tells."""
        import pyarrow as pa

        values = self._parser(path) if self._parser is not None else {}
        for name in values:
            if name not in schema.names:
                schema = schema.append(pa.field(name, arrow_type(values, name)))
        if self._include_paths and PATH_COLUMN not in schema.names:
            schema = schema.append(pa.field(PATH_COLUMN, pa.string()))
        return schema

    # ---- what the driver reads before the tasks are made

    def _sample(self, files: Sequence[File]) -> Sequence[File]:
        return files[:_FOOTERS_BEFORE_READING]

    def _read_footers(self, files: Sequence[File]) -> list[pq.FileMetaData]:
        """The footers of files, which are kept."""
        unread = [file for file in files if file.path not in self._footers]
        if len(unread) > 1 and not is_local(self._filesystem):
            with ThreadPoolExecutor(_FOOTER_THREADS, thread_name_prefix="data-footers") as pool:
                footers = list(pool.map(self._footer, unread))
        else:
            footers = [self._footer(file) for file in unread]
        self._footers.update(zip((file.path for file in unread), footers, strict=True))
        return [self._footers[file.path] for file in files]

    def _footer(self, file: File) -> pq.FileMetaData:
        import pyarrow.parquet as pq

        def read() -> pq.FileMetaData:
            with self._filesystem.open_input_file(file.path) as source:
                return pq.read_metadata(source)

        try:
            return self._retries.call(read)
        except Exception as error:
            errors.raise_for(file.path, error)

    def _parts(self, files: Sequence[File]) -> list[_Part]:
        """The row groups that have to be read, in order, with their bytes in memory."""
        parts: list[_Part] = []
        known = self._sample(self._files)
        self._read_footers(known)
        schema = self._file_schema()
        file_bytes = sum(file.size_bytes for file in known) or 1
        for file in files:
            footer = self._footers.get(file.path)
            if footer is None:
                continue
            groups = self._row_groups(file, schema)
            for index in groups:
                meta = footer.row_group(index)
                parts.append(
                    _Part(file, (index,), meta.num_rows, _memory_bytes(footer, index, self._columns))
                )
        if len(known) < len(files):
            ratio = sum(part.size_bytes for part in parts) / file_bytes
            by_file = {
                path: list(found) for path, found in itertools.groupby(parts, lambda part: part.file.path)
            }
            parts = []
            for file in files:
                unread = [_Part(file, None, None, int(file.size_bytes * ratio))]
                parts += by_file.get(file.path, []) if file.path in self._footers else unread
        return parts

    def _row_groups(self, file: File, schema: pa.Schema) -> list[int]:
        """The row groups of a file that may have rows that satisfy the predicate."""
        import pyarrow as pa

        if self._predicate is None:
            return list(range(self._footers[file.path].num_row_groups))
        fragment = self._fragment(file, schema)
        expression = self._predicate.to_arrow()
        try:
            subset = fragment.subset(expression, schema=self._full_schema(schema, file.path))
        except pa.ArrowNotImplementedError:  # statistics of a type that cannot be compared, as string_view
            return list(range(self._footers[file.path].num_row_groups))
        return [group.id for group in subset.row_groups]

    # ---- what tasks do

    def _read_parts(self, parts: Sequence[_Part], block_bytes: int, rows: int | None) -> Iterator[pa.Table]:
        return blocks.sized(self._tables_of_parts(parts, rows), block_bytes, rows)

    def _tables_of_parts(self, parts: Sequence[_Part], rows: int | None) -> Iterator[pa.Table]:
        for part in parts:
            try:
                yield from self._retries.iterate(functools.partial(self._scan, part, rows))
            except Exception as error:
                errors.raise_for(part.file.path, error)

    def _scan(self, part: _Part, rows: int | None) -> Iterator[pa.Table]:
        """The rows of a part. They are decoded as they are asked for, which Arrow's own scanner does not do."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from runtime.data._block import batch, tensor, views

        path = part.file.path
        remote = not is_local(self._filesystem)
        with self._filesystem.open_input_file(path) as source:
            file = pq.ParquetFile(source, pre_buffer=remote)
            own = views.plain_schema(file.schema_arrow.remove_metadata())
            schema = self._full_schema(self._schema or own, path)
            wanted = list(schema.names if self._columns is None else self._columns)
            used = wanted + sorted(
                self._predicate.columns() - set(wanted) if self._predicate is not None else ()
            )
            unknown = [name for name in used if name not in schema.names]
            if unknown:
                raise errors.FileReadError(path, f"it has no column {unknown[0]!r}, but {schema.names}")
            stored = [name for name in used if name in own.names and not self._is_path(name)]
            known = {name: value for name, value in self._path_values(path).items() if name not in stored}
            groups = self._groups_of(part)
            batch_rows = self._batch_rows(part, rows)
            for chosen in [[group] for group in groups] if remote or not stored else [groups]:
                tables: Iterator[pa.Table]
                if stored:
                    read = file.iter_batches(batch_rows, chosen, stored, **self._scan_options)
                    tables = (tensor.adopt_foreign(pa.Table.from_batches([each])) for each in read)
                else:
                    tables = iter([batch.empty_columns(file.metadata.row_group(chosen[0]).num_rows)])
                for table in tables:
                    whole = _conformed(table, schema, used, known)
                    if self._predicate is not None:
                        whole = whole.filter(self._predicate.evaluate(whole))
                    if whole.num_rows:
                        yield whole.select(wanted)

    def _groups_of(self, part: _Part) -> list[int]:
        if part.row_groups is not None:
            return list(part.row_groups)
        self._read_footers([part.file])
        return self._row_groups(part.file, self._schema)

    def _is_path(self, name: str) -> bool:
        return self._include_paths and name == PATH_COLUMN

    def _path_values(self, path: str) -> dict[str, Any]:
        """The values of columns that the path tells."""
        values = dict(self._parser(path)) if self._parser is not None else {}
        return {**values, PATH_COLUMN: path} if self._include_paths else values

    def _fragment(self, file: File, schema: pa.Schema | None) -> pads.ParquetFileFragment:
        """The file as Arrow compares it with a predicate: with the values of its folders as facts about its rows."""
        import pyarrow as pa
        import pyarrow.dataset as pads

        values = self._parser(file.path) if self._parser is not None else {}
        known = None
        for name, value in values.items():
            if schema is None or name not in schema.names:
                fact = pads.field(name) == pa.scalar(value, arrow_type(values, name))
                fact = pads.field(name).is_null() if value is None else fact
                known = fact if known is None else known & fact
        options = {} if known is None else {"partition_expression": known}
        return pads.ParquetFileFormat().make_fragment(file.path, self._filesystem, **options)

    def _batch_rows(self, part: _Part, rows: int | None) -> int:
        if "batch_size" in self._scan_options:
            return int(self._scan_options["batch_size"])
        row_bytes = part.size_bytes / part.rows if part.rows else 1024
        most = max(1, min(_MAX_BATCH_ROWS, int(_BATCH_BYTES / max(row_bytes, 1))))
        return most if rows is None or self._predicate is not None else min(most, max(rows, _MIN_BATCH_ROWS))


def _conformed(table: pa.Table, schema: pa.Schema, names: Sequence[str], known: dict[str, Any]) -> pa.Table:
    """The table with these columns, of the schema's types; those that the file lacks are of its path, or null."""
    import pyarrow as pa

    columns = []
    for name in names:
        kind = schema.field(name).type
        if name in known:
            columns.append(constant(known[name], kind, table.num_rows))
        elif name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, kind))
        else:
            column = table[name]
            columns.append(column if column.type == kind else column.cast(kind))
    return pa.table(columns, names=list(names)) if names else table


def _enough(parts: list[_Part], rows: int) -> list[_Part]:
    """The first parts that have so many rows."""
    found = 0
    for index, part in enumerate(parts):
        if part.rows is None:
            return parts
        found += part.rows
        if found >= rows:
            return parts[: index + 1]
    return parts


def _merged(parts: Sequence[_Part]) -> list[_Part]:
    """Row groups of one file that follow one another as one part, so that the file is opened once."""
    merged: list[_Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if last is None or last.file != part.file or last.row_groups is None or part.row_groups is None:
            merged.append(part)
            continue
        rows = (last.rows or 0) + (part.rows or 0)
        groups = last.row_groups + part.row_groups
        merged[-1] = _Part(part.file, groups, rows, last.size_bytes + part.size_bytes)
    return merged


def _memory_bytes(footer: pq.FileMetaData, row_group: int, columns: Sequence[str] | None) -> int:
    """Bytes in memory of a row group: exact for columns of numbers, a guess for strings and lists."""
    meta = footer.row_group(row_group)
    total = 0
    for index in range(meta.num_columns):
        chunk = meta.column(index)
        if columns is not None and chunk.path_in_schema.partition(".")[0] not in columns:
            continue
        width = _WIDTHS.get(chunk.physical_type)
        if width is not None:
            total += int(chunk.num_values * width)
        else:
            # A dictionary holds each value once; in memory a value is there as often as it occurs.
            repeats = 3 if chunk.has_dictionary_page else 1
            total += chunk.total_uncompressed_size * repeats + 4 * chunk.num_values
    return total


_WIDTHS = {"INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8, "INT96": 8, "BOOLEAN": 0.125}
