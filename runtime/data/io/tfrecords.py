"""TFRecord files of `tf.train.Example` messages."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from runtime.data.io import crc32c, tf_example
from runtime.data.io.errors import FileReadError
from runtime.data.io.files import FileBasedDatasource
from runtime.data.io.rolling import StreamingFileDatasink, Writer

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 1024


class TFRecordDatasource(FileBasedDatasource):
    """A row per Example, a column per feature.

    A feature that has one value in all Examples that are read together is that value, otherwise a list. Checksums of
    lengths are always verified, those of contents if `google-crc32c` or `crc32c` is installed.
    """

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        examples: list[dict[str, list[Any]]] = []
        is_list: set[str] = set()
        for row, message in enumerate(records(f, path)):
            try:
                examples.append(tf_example.decode(message))
            except ValueError as error:
                raise FileReadError(path, str(error), row) from error
            if len(examples) == _ROWS_AT_ONCE:
                yield _table(examples, is_list)
                examples = []
        if examples:
            yield _table(examples, is_list)


def records(f: Any, path: str) -> Iterator[bytes]:
    """The records of a file. Raises FileReadError with the number of a record that is cut off or damaged."""
    verify, row = crc32c.fast(), 0
    while header := f.read(12):
        if len(header) < 12:
            raise FileReadError(path, "it is cut off", row)
        size, checksum = struct.unpack("<QI", header)
        if crc32c.masked(header[:8], verify) != checksum:
            raise FileReadError(
                path, "the length of a record has another checksum; is it a TFRecord file?", row
            )
        data = f.read(size + 4)
        if len(data) < size + 4:
            raise FileReadError(path, "it is cut off", row)
        if verify is not None and crc32c.masked(data[:size], verify) != int.from_bytes(data[size:], "little"):
            raise FileReadError(path, "a record has another checksum", row)
        yield data[:size]
        row += 1


def _table(examples: list[dict[str, list[Any]]], is_list: set[str]) -> pa.Table:
    """The rows of Examples; `is_list` remembers which features of the file had several values."""
    import pyarrow as pa

    names = list(dict.fromkeys(name for example in examples for name in example))
    columns = {}
    for name in names:
        lists = [example.get(name) or None for example in examples]
        if any(values is not None and len(values) > 1 for values in lists):
            is_list.add(name)
        values = lists if name in is_list else [None if each is None else each[0] for each in lists]
        is_float = any(isinstance(each[0], float) for each in lists if each)
        kind = None if not is_float else (pa.list_(pa.float32()) if name in is_list else pa.float32())
        columns[name] = pa.array(values, kind)
    return pa.table(columns)


class TFRecordDatasink(StreamingFileDatasink):
    """Writes rows as Examples: integers, floats, bytes and text, and lists of one of them."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, file_format="tfrecords", **options)

    def open_writer(self, file: pa.NativeFile, schema: pa.Schema) -> Writer:
        return _Writer(file)


class _Writer:
    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file

    def write(self, table: pa.Table) -> None:
        from runtime.data._block import batch

        for row in batch.rows(table):
            self._file.write(framed(tf_example.encode(row)))

    def close(self) -> None:
        """All is written."""


def framed(message: bytes) -> bytes:
    """A record: its length and its content, each with its checksum."""
    size = struct.pack("<Q", len(message))
    return b"".join(
        [size, struct.pack("<I", crc32c.masked(size)), message, struct.pack("<I", crc32c.masked(message))]
    )
