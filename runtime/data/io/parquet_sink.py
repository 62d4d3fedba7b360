"""Writes Parquet files, in folders by the values of columns if wanted."""

from __future__ import annotations

import urllib.parse
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from runtime.data.io.blocks import TARGET_BYTES
from runtime.data.io.partitioning import NULL_NAME
from runtime.data.io.rolling import RollingFile, StreamingFileDatasink, Writer
from runtime.data.io.sinks import TaskFiles

if TYPE_CHECKING:
    import pyarrow as pa

_ROW_GROUP_BYTES = 64 * 1024 * 1024  # in memory
_ROW_GROUP_ROWS = 1024 * 1024
_OPEN_FILES = 128  # of the folders of a task; the one that was not written to for longest is completed first


class ParquetDatasink(StreamingFileDatasink):
    """Writes Parquet files in row groups of up to 64 MiB in memory.

    Args:
        partition_cols: Columns by whose values rows go to folders `name=value`; the files do not have them.
        arrow_parquet_args: Arguments of `pyarrow.parquet.ParquetWriter`, and `row_group_size` in rows. Decimals of up
            to 18 digits are stored as integers by default: they are decoded several times as fast as bytes.
        arrow_parquet_args_fn: Makes more of them in the task, for those that do not pickle.
    """

    def __init__(
        self,
        path: str,
        *,
        partition_cols: Sequence[str] | None = None,
        arrow_parquet_args: dict[str, Any] | None = None,
        arrow_parquet_args_fn: Callable[[], dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, file_format="parquet", **options)
        self._partition_columns = list(partition_cols or ())
        self._arguments = dict(arrow_parquet_args or {})
        self._arguments_fn = arrow_parquet_args_fn

    def open_writer(self, file: pa.NativeFile, schema: pa.Schema) -> Writer:
        arguments = {**self._arguments, **(self._arguments_fn() if self._arguments_fn else {})}
        return _ParquetWriter(file, schema, arguments)

    def write_blocks(self, blocks: Iterable[pa.Table], files: TaskFiles) -> None:
        if not self._partition_columns:
            super().write_blocks(blocks, files)
            return
        by_folder: OrderedDict[str, RollingFile] = OrderedDict()
        try:
            for table in blocks:
                for folder, part in partitions(table, self._partition_columns):
                    if folder not in by_folder:
                        if len(by_folder) == _OPEN_FILES:
                            by_folder.popitem(last=False)[1].close()
                        by_folder[folder] = RollingFile(self, files, folder, TARGET_BYTES // _OPEN_FILES)
                    by_folder.move_to_end(folder)
                    by_folder[folder].write(part)
            for rolling in by_folder.values():
                rolling.close()
        except BaseException:
            for rolling in by_folder.values():
                rolling.abandon()
            raise


class _ParquetWriter:
    """Joins small blocks to row groups, for each row group costs a dictionary per column."""

    def __init__(self, file: pa.NativeFile, schema: pa.Schema, arguments: dict[str, Any]) -> None:
        import pyarrow.parquet as pq

        arguments = dict(arguments)
        self._group_rows = arguments.pop("row_group_size", None)
        arguments.setdefault("compression", "snappy")
        arguments.setdefault("store_decimal_as_integer", True)
        self._writer = pq.ParquetWriter(file, arguments.pop("schema", schema), **arguments)
        self._pending: list[pa.Table] = []
        self._rows = self._bytes = 0

    def write(self, table: pa.Table) -> None:
        if table.schema != self._writer.schema:
            table = table.cast(self._writer.schema)
        self._pending.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._bytes >= _ROW_GROUP_BYTES or self._rows >= _ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._pending:
            by_size = max(1, self._rows * _ROW_GROUP_BYTES // max(self._bytes, 1))
            rows = self._group_rows or min(by_size, max(self._rows, _ROW_GROUP_ROWS))
            self._writer.write_table(pa.concat_tables(self._pending), row_group_size=rows)
        self._pending, self._rows, self._bytes = [], 0, 0

    def close(self) -> None:
        self._flush()
        self._writer.close()


def partitions(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The parts of a table by the values of columns: the folder of each, and its rows without these columns.

    Raises:
        ValueError: The table lacks a column, or would have none left.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise ValueError(f"partition_cols has {missing[0]!r}, but the columns are {table.column_names}.")
    others = [name for name in table.column_names if name not in columns]
    if not others:
        raise ValueError(
            f"partition_cols has all columns ({table.column_names}); nothing is left for the files."
        )
    if not table.num_rows:
        return
    codes = np.zeros(table.num_rows, dtype=np.int64)
    values: list[pa.Array] = []
    for name in columns:
        encoded = pc.dictionary_encode(table[name].combine_chunks(), null_encoding="encode")
        values.append(encoded.dictionary)
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    rest = table.select(others).take(pa.array(order)) if len(starts) > 1 else table.select(others)
    for start, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
        code, names = int(ordered[start]), []
        for name, dictionary in zip(reversed(columns), reversed(values), strict=True):
            code, index = divmod(code, len(dictionary))
            names.append(f"{urllib.parse.quote(name, safe=' ')}={_folder_value(dictionary[index].as_py())}")
        yield "/".join(reversed(names)), rest.slice(start, end - start)


def _folder_value(value: Any) -> str:
    """A value as part of a folder's name; `PathPartitionParser` reads it back."""
    return NULL_NAME if value is None else urllib.parse.quote(str(value), safe=" :")
