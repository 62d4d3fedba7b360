"""The base of all sources that read files: paths, partitions, grouping into tasks, limits, blocks of sensible size."""

from __future__ import annotations

import copy
import dataclasses
import functools
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from runtime.data.io import blocks, errors, opening, paths
from runtime.data.io.filesystems import is_this_machine_only, resolve
from runtime.data.io.grouping import group, split
from runtime.data.io.interfaces import BlockMetadata, Datasource, ReadTask, as_table
from runtime.data.io.partitioning import (
    Partitioning,
    PathPartitionFilter,
    PathPartitionParser,
    arrow_type,
)
from runtime.data.io.paths import File
from runtime.data.io.retries import Retries

if TYPE_CHECKING:
    import pyarrow as pa

PATH_COLUMN = "path"


@dataclasses.dataclass(frozen=True, slots=True)
class FileShuffleConfig:
    """Reads files in random order.

    Attributes:
        seed: Makes the order the same in every run; None for another order each time.
    """

    seed: int | None = None


class FileBasedDatasource(Datasource):
    """Reads files. A subclass defines `_read_stream`, which yields a file's rows as tables or data frames.

    Args:
        paths: Files, folders (with all below), patterns with `*`, or several of them, local or with a scheme.
        filesystem: A file system of pyarrow or fsspec; by default the paths' schemes decide.
        schema: The schema of the blocks, if known.
        open_stream_args: Arguments of `pyarrow.fs.FileSystem.open_input_stream`; "compression" overrules the ending.
        meta_provider: Not used; accepted for Ray's signature.
        partition_filter: Which files to read.
        partitioning: How the files' folders encode columns that are added to their rows.
        ignore_missing_paths: Whether paths that do not exist are skipped.
        shuffle: "files" or a `FileShuffleConfig` for a random order of files.
        include_paths: Whether to add the column "path".
        file_extensions: Endings that files must have, for example ["csv"].

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: There is no file to read.
    """

    _SIZE_RATIO = 1.0  # bytes in memory by bytes in the file, of uncompressed files
    _COMPRESSED_RATIO = 3.0  # bytes of a file by its compressed bytes
    _BOUNDARY: re.Pattern[bytes] | None = None  # matches up to where a row ends, if files may be cut there
    _LEAST_PART_BYTES = 8 * 1024 * 1024

    def __init__(
        self,
        paths: Any,
        *,
        filesystem: Any = None,
        schema: pa.Schema | None = None,
        open_stream_args: dict[str, Any] | None = None,
        meta_provider: Any = None,
        partition_filter: PathPartitionFilter | None = None,
        partitioning: Partitioning | None = None,
        ignore_missing_paths: bool = False,
        shuffle: Literal["files"] | FileShuffleConfig | None = None,
        include_paths: bool = False,
        file_extensions: Sequence[str] | None = None,
    ) -> None:
        if shuffle not in (None, "files") and not isinstance(shuffle, FileShuffleConfig):
            raise ValueError(f"shuffle must be None, 'files' or a FileShuffleConfig, not {shuffle!r}.")
        self._is_here_only = is_this_machine_only(paths)
        self._filesystem, named = resolve(paths, filesystem)
        self._schema = schema
        self._open_args = dict(open_stream_args or {})
        self._parser = PathPartitionParser(partitioning) if partitioning is not None else None
        self._shuffle = FileShuffleConfig() if shuffle == "files" else shuffle
        self._include_paths = include_paths
        self._columns: list[str] | None = None
        self._limit: int | None = None
        self._retries = Retries.of()
        self._files: tuple[File, ...] = tuple(
            self._retries.call(
                lambda: _expand(
                    self._filesystem, named, file_extensions, ignore_missing_paths, partition_filter
                )
            )
        )

    @property
    def input_files(self) -> list[str]:
        """The paths of all files."""
        return [file.path for file in self._files]

    @property
    def supports_distributed_reads(self) -> bool:
        """Whether other machines have the files: not those of local:// paths."""
        return not self._is_here_only

    def estimate_inmemory_data_size(self) -> int | None:
        return sum(self._estimate(file) for file in self._files)

    def with_limit(self, limit: int) -> Self:
        """A source whose tasks stop after `limit` rows each."""
        return self._changed(_limit=limit if self._limit is None else min(limit, self._limit))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        files = split(self._ordered(), parallelism, self._LEAST_PART_BYTES, self._may_split)
        reader = self._changed(_files=(), _retries=Retries.of(data_context))
        rows = least(self._limit, per_task_row_limit)
        size = target_bytes(data_context)
        tasks = []
        for indices in group([file.size_bytes for file in files], parallelism):
            part = files[indices.start : indices.stop]
            tasks.append(
                ReadTask(
                    functools.partial(reader._read, part, size, rows),
                    BlockMetadata(
                        num_rows=self._known_rows(part) if rows is None else None,
                        size_bytes=sum(self._estimate(file) for file in part),
                        input_files=tuple(dict.fromkeys(file.path for file in part)),
                    ),
                    self._block_schema(),
                    rows,
                )
            )
        return tasks

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterable[Any]:
        """Yields the rows of the open file `f` as tables or data frames."""
        raise NotImplementedError(f"{type(self).__name__} must define _read_stream.")

    def _block_schema(self) -> pa.Schema | None:
        """The schema of the blocks, if it is known without reading."""
        return self._schema

    def _known_rows(self, files: Sequence[File]) -> int | None:
        """The number of rows of files, if it is known without reading them."""
        return None

    def _estimate(self, file: File) -> int:
        """Bytes in memory of a file's rows, roughly."""
        compressed = opening.compression_of(file.path, self._open_args) is not None
        return int(file.size_bytes * self._SIZE_RATIO * (self._COMPRESSED_RATIO if compressed else 1))

    def _may_split(self, file: File) -> bool:
        """Whether several tasks may read parts of the file."""
        return self._BOUNDARY is not None and opening.is_splittable(self._filesystem, file, self._open_args)

    def _ordered(self) -> list[File]:
        files = list(self._files)
        if self._shuffle is not None:
            random.Random(self._shuffle.seed).shuffle(files)
        return files

    def _read(self, files: Sequence[File], block_bytes: int, rows: int | None) -> Iterator[pa.Table]:
        return blocks.sized(self._tables(files), block_bytes, rows)

    def _tables(self, files: Sequence[File]) -> Iterator[pa.Table]:
        for file, opener in self._opened(files):
            yield from self._tables_of(file, opener)

    def _opened(self, files: Sequence[File]) -> Iterator[tuple[File, Callable[[], pa.NativeFile]]]:
        return opening.opened(self._filesystem, files, self._open_args, self._BOUNDARY)

    def _tables_of(self, file: File, opener: Callable[[], pa.NativeFile]) -> Iterator[pa.Table]:
        def read() -> Iterator[pa.Table]:
            with opener() as stream:
                for block in self._read_stream(stream, file.path):
                    yield self._selected(self._with_file_columns(as_table(block), file.path), file.path)

        try:
            yield from self._retries.iterate(read)
        except Exception as error:
            errors.raise_for(file.path, error, file.start)

    def _with_file_columns(self, table: pa.Table, path: str) -> pa.Table:
        """Adds the columns that the path tells: values of its folders, and the path itself."""
        import pyarrow as pa

        values = self._parser(path) if self._parser is not None else {}
        for name in values:
            if name not in table.column_names:
                table = table.append_column(
                    name, constant(values[name], arrow_type(values, name), table.num_rows)
                )
        if self._include_paths:
            column = constant(path, pa.string(), table.num_rows)
            if PATH_COLUMN in table.column_names:
                table = table.set_column(table.column_names.index(PATH_COLUMN), PATH_COLUMN, column)
            else:
                table = table.append_column(PATH_COLUMN, column)
        return table

    def _selected(self, table: pa.Table, path: str) -> pa.Table:
        if self._columns is None:
            return table
        missing = [name for name in self._columns if name not in table.column_names]
        if missing:
            raise errors.FileReadError(path, f"it has no column {missing[0]!r}, but {table.column_names}")
        return table.select(self._columns)

    def _columns_of_file(self, path: str) -> list[str] | None:
        """The wanted columns that the file itself must have; None for all."""
        if self._columns is None:
            return None
        of_path = set(self._parser(path)) if self._parser is not None else set()
        if self._include_paths:
            of_path.add(PATH_COLUMN)
        return [name for name in self._columns if name not in of_path]

    def _changed(self, **changes: Any) -> Self:
        other = copy.copy(self)
        for name, value in changes.items():
            setattr(other, name, value)
        return other


def constant(value: Any, kind: pa.DataType, length: int) -> pa.Array:
    """A column that has one value throughout."""
    import pyarrow as pa

    return pa.repeat(pa.scalar(value, kind), length)


def _expand(
    filesystem: Any,
    named: Sequence[str],
    extensions: Sequence[str] | None,
    ignore_missing: bool,
    partition_filter: PathPartitionFilter | None,
) -> list[File]:
    keep: Callable[[str], bool] | None = partition_filter.apply if partition_filter is not None else None
    return paths.expand(filesystem, named, extensions, ignore_missing, keep)


def target_bytes(data_context: Any) -> int:
    """How large blocks may be by a `DataContext`; by None, as large as by default."""
    return int(getattr(data_context, "target_max_block_size", None) or blocks.TARGET_BYTES)


def least(*limits: int | None) -> int | None:
    """The smallest of limits, of which None is none."""
    return min((limit for limit in limits if limit is not None), default=None)
