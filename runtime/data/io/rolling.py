"""Sinks that write files as their rows come, and begin a new file when one is full."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from runtime.data.io.blocks import TARGET_BYTES
from runtime.data.io.errors import writing
from runtime.data.io.filesystems import is_local
from runtime.data.io.sinks import FileDatasink, TaskFiles

if TYPE_CHECKING:
    import pyarrow as pa


class Writer(Protocol):
    """Writes tables of one schema to an open file."""

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None:
        """Completes the content; the file itself is closed by its owner."""


class StreamingFileDatasink(FileDatasink):
    """Writes blocks to a file as they come, so that a task holds one block at a time.

    Args:
        min_rows_per_file: The fewest rows of a file, as far as the data set has them.
        min_bytes_per_file: The fewest bytes in memory of a file's rows, as far as the data set has them.
        max_rows_per_file: The most rows of a file.
    """

    def __init__(
        self,
        path: str,
        *,
        min_rows_per_file: int | None = None,
        min_bytes_per_file: int | None = None,
        max_rows_per_file: int | None = None,
        **options: Any,
    ) -> None:
        for name, rows in (
            ("min_rows_per_file", min_rows_per_file),
            ("min_bytes_per_file", min_bytes_per_file),
            ("max_rows_per_file", max_rows_per_file),
        ):
            if rows is not None and rows < 1:
                raise ValueError(f"{name} must be at least 1, not {rows}.")
        if (
            min_rows_per_file is not None
            and max_rows_per_file is not None
            and min_rows_per_file > max_rows_per_file
        ):
            raise ValueError(f"min_rows_per_file={min_rows_per_file} is more than {max_rows_per_file=}.")
        super().__init__(path, **options)
        self._min_rows = min_rows_per_file
        self._min_bytes = min_bytes_per_file
        self._max_rows = max_rows_per_file

    @property
    def min_rows_per_write(self) -> int | None:
        return self._min_rows

    @property
    def min_bytes_per_write(self) -> int | None:
        return self._min_bytes

    @abstractmethod
    def open_writer(self, file: pa.NativeFile, schema: pa.Schema) -> Writer:
        """A writer of tables of this schema."""

    def write_blocks(self, blocks: Iterable[pa.Table], files: TaskFiles) -> None:
        with RollingFile(self, files) as rolling:
            for table in blocks:
                rolling.write(table)

    @property
    def max_rows_per_file(self) -> int | None:
        return self._max_rows


class RollingFile:
    """Writes tables to a file, and to a new one when it is full or the schema changes.

    After an error that may pass, the file is begun once more with the rows it had.

    Args:
        folder: Below the target.
        kept_bytes: Rows of a file are kept for that as long as they are no more than this. None are on this machine's
            disks, unless the user names errors.
    """

    def __init__(
        self, sink: StreamingFileDatasink, files: TaskFiles, folder: str = "", kept_bytes: int = TARGET_BYTES
    ) -> None:
        self._most_kept_bytes = 0 if is_local(sink.filesystem) and not sink.retries.for_disks else kept_bytes
        self._sink = sink
        self._files = files
        self._folder = folder
        self._context: AbstractContextManager[pa.NativeFile] | None = None
        self._writer: Writer | None = None
        self._path = ""
        self._kept: list[pa.Table] | None = [] if self._most_kept_bytes else None
        self._kept_bytes = 0
        self._schema: pa.Schema | None = None
        self._rows = 0

    def __enter__(self) -> RollingFile:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self.close()
        else:
            self.abandon()

    def write(self, table: pa.Table) -> None:
        limit = self._sink.max_rows_per_file
        while table.num_rows:
            if self._rows and (self._rows == limit or not table.schema.equals(self._schema)):
                self.close()
            part = table if limit is None else table.slice(0, limit - self._rows)
            self._schema, self._rows = table.schema, self._rows + part.num_rows
            self._keep(part)
            self._attempt(lambda: self._append(part))  # noqa: B023 - called at once
            table = table.slice(part.num_rows)

    def close(self) -> None:
        """Completes the file, if one is open."""
        if self._rows:
            self._attempt(self._complete)
        self._kept, self._kept_bytes = [] if self._most_kept_bytes else None, 0
        self._rows = 0

    def _keep(self, part: pa.Table) -> None:
        self._kept_bytes += part.nbytes
        if self._kept is not None and (self._kept_bytes <= self._most_kept_bytes or not self._kept):
            self._kept.append(part)
        else:
            self._kept = None

    def _attempt(self, step: Callable[[], None]) -> None:
        """Runs a step; again, if it fails and the rows of the file are known, after writing these to a new one."""
        failed = False

        def attempt() -> None:
            nonlocal failed
            if failed:
                self.abandon()
            failed = True
            step()

        try:
            self._sink.retries.call(attempt) if self._kept is not None else step()
        except BaseException:
            self.abandon()
            raise

    def _append(self, part: pa.Table) -> None:
        if self._writer is None and self._kept is not None:
            for each in self._kept:  # all of the file so far, `part` being the last
                self._write_to_file(each)
        else:
            self._write_to_file(part)

    def _write_to_file(self, part: pa.Table) -> None:
        if self._writer is None:
            self._context = self._files.for_block(part, self._folder)
            file = self._context.__enter__()
            self._path = self._files.current
            with writing(self._path):
                self._writer = self._sink.open_writer(file, part.schema)
        with writing(self._path):
            self._writer.write(part)

    def _complete(self) -> None:
        if self._writer is None:
            for each in self._kept or ():
                self._write_to_file(each)
        assert self._writer is not None
        assert self._context is not None
        with writing(self._path):
            self._writer.close()
        self._context.__exit__(None, None, None)
        self._writer = self._context = None

    def abandon(self) -> None:
        """Gives up the open file."""
        context, self._writer, self._context = self._context, None, None
        if context is not None:
            with suppress(Exception):
                context.__exit__(_Abandoned, _Abandoned(), None)


class _Abandoned(Exception):
    """Makes the context of a file close it without counting it as done."""
