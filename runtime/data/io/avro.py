"""Avro files, read by fastavro."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from runtime.data._libraries import load
from runtime.data.io.files import FileBasedDatasource

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 10_000


class AvroDatasource(FileBasedDatasource):
    """A row per record. Raises ImportError if fastavro is not installed."""

    _SIZE_RATIO = 2.0

    def __init__(self, paths: Any, **options: Any) -> None:
        load("fastavro", "read_avro")
        super().__init__(paths, **options)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        from runtime.data._block import batch

        fastavro = load("fastavro", "read_avro")

        rows: list[Any] = []
        for record in fastavro.reader(io.BytesIO(f.read())):
            rows.append(record)
            if len(rows) == _ROWS_AT_ONCE:
                yield batch.from_rows(rows)
                rows = []
        if rows:
            yield batch.from_rows(rows)
