"""Avro files, read by fastavro."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from runtime.data.io.errors import missing
from runtime.data.io.files import FileBasedDatasource

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 10_000


class AvroDatasource(FileBasedDatasource):
    """A row per record. Raises ImportError if fastavro is not installed."""

    _SIZE_RATIO = 2.0

    def __init__(self, paths: Any, **options: Any) -> None:
        try:
            import fastavro  # noqa: F401
        except ImportError:
            raise missing("fastavro", "read_avro") from None
        super().__init__(paths, **options)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        import fastavro

        from runtime.data._block import batch

        rows: list[Any] = []
        for record in fastavro.reader(io.BytesIO(f.read())):
            rows.append(record)
            if len(rows) == _ROWS_AT_ONCE:
                yield batch.from_rows(rows)
                rows = []
        if rows:
            yield batch.from_rows(rows)
