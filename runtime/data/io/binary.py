"""Whole files as bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from runtime.data.io.files import FileBasedDatasource
from runtime.data.io.paths import File

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_BINARY_BYTES = 2**31 - 2


class BinaryDatasource(FileBasedDatasource):
    """A row per file, with its decompressed content in the column "bytes"."""

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        import pyarrow as pa

        data = f.read()
        kind = pa.binary() if len(data) <= _MAX_BINARY_BYTES else pa.large_binary()
        yield pa.table({"bytes": pa.array([data], kind)})

    def _known_rows(self, files: Sequence[File]) -> int | None:
        return len(files)

    def row_count(self) -> int | None:
        """The number of files."""
        return len(self._files) if self._limit is None else min(self._limit, len(self._files))
