"""ORC files, read by pyarrow stripe by stripe."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from runtime.data.io.files import FileBasedDatasource
from runtime.data.io.rolling import StreamingFileDatasink, Writer

if TYPE_CHECKING:
    import pyarrow as pa


class ORCDatasource(FileBasedDatasource):
    """Rows of ORC files."""

    _SIZE_RATIO = 4.0

    def with_columns(self, columns: list[str]) -> Self:
        """A source that reads these columns, in this order."""
        return self._changed(_columns=list(columns))

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        import pyarrow as pa
        import pyarrow.orc

        file = pyarrow.orc.ORCFile(pa.BufferReader(f.read()))
        wanted = self._columns_of_file(path)
        if wanted is not None:
            wanted = [name for name in wanted if name in file.schema.names] or None
        for stripe in range(file.nstripes):
            yield pa.Table.from_batches([file.read_stripe(stripe, columns=wanted)])
        if not file.nstripes:
            yield file.schema.empty_table()


class ORCDatasink(StreamingFileDatasink):
    """Writes ORC files.

    Args:
        arrow_orc_args: Arguments of `pyarrow.orc.ORCWriter`.
        arrow_orc_args_fn: Makes more of them in the task, for those that do not pickle.
    """

    def __init__(
        self,
        path: str,
        *,
        arrow_orc_args: dict[str, Any] | None = None,
        arrow_orc_args_fn: Callable[[], dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, file_format="orc", **options)
        self._arguments = dict(arrow_orc_args or {})
        self._arguments_fn = arrow_orc_args_fn

    def open_writer(self, file: pa.NativeFile, schema: pa.Schema) -> Writer:
        more = self._arguments_fn() if self._arguments_fn else {}
        return _Writer(file, {**self._arguments, **more})


class _Writer:
    """Writes to memory first, for the library wants a position that not all files have."""

    def __init__(self, file: pa.NativeFile, arguments: dict[str, Any]) -> None:
        import pyarrow.orc

        self._file = file
        self._buffer = io.BytesIO()
        self._writer = pyarrow.orc.ORCWriter(self._buffer, **arguments)

    def write(self, table: pa.Table) -> None:
        self._writer.write(table)

    def close(self) -> None:
        self._writer.close()
        self._file.write(self._buffer.getbuffer())
