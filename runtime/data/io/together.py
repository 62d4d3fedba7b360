"""Parses small files together: a call of Arrow's CSV or JSON parser costs 0.3 ms, however little there is to parse."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from runtime.data.io import errors
from runtime.data.io.files import FileBasedDatasource
from runtime.data.io.paths import File

if TYPE_CHECKING:
    import pyarrow as pa

_SMALL_BYTES = 256 * 1024
_BYTES_AT_ONCE = 4 * 1024 * 1024
_FILES_AT_ONCE = 128


class LinesDatasource(FileBasedDatasource):
    """A source of files whose rows are lines. A subclass also defines `_parse_together`."""

    @abstractmethod
    def _parse_together(self, contents: Sequence[bytes], path: str) -> tuple[pa.Table, list[int]] | None:
        """The rows of small files, and how many each has; None if they have to be read one by one. `path` is the first.

        It must not be wrong about the number of rows: lines may be blank, and values may have line ends.
        """

    def _tables(self, files: Sequence[File]) -> Iterator[pa.Table]:
        small: list[tuple[File, bytes]] = []
        size = 0
        for file, opener in self._opened(files):
            if not (file.is_whole and 0 < file.size_bytes <= _SMALL_BYTES):
                yield from self._together(small)
                small, size = [], 0
                yield from self._tables_of(file, opener)
                continue
            try:
                small.append((file, self._retries.call(lambda: _content(opener))))  # noqa: B023 - called at once
            except Exception as error:
                errors.raise_for(file.path, error)
            size += len(small[-1][1])
            if size >= _BYTES_AT_ONCE or len(small) == _FILES_AT_ONCE:
                yield from self._together(small)
                small, size = [], 0
        yield from self._together(small)

    def _together(self, small: Sequence[tuple[File, bytes]]) -> Iterator[pa.Table]:
        import pyarrow as pa

        try:
            contents = [data for _, data in small]
            parsed = self._parse_together(contents, small[0][0].path) if len(small) > 1 else None
        except (pa.ArrowInvalid, pa.ArrowKeyError):
            parsed = None  # the file that is wrong is found when they are read one by one
        if parsed is None:
            for file, data in small:
                yield from self._tables_of(file, lambda data=data: pa.BufferReader(data))  # type: ignore[misc]
            return
        table, rows = parsed
        if not self._include_paths and not any(self._parser and self._parser(file.path) for file, _ in small):
            yield self._selected(table, small[0][0].path)
            return
        start = 0
        for (file, _), count in zip(small, rows, strict=True):
            yield self._selected(self._with_file_columns(table.slice(start, count), file.path), file.path)
            start += count


def _content(opener: Callable[[], pa.NativeFile]) -> bytes:
    with opener() as stream:
        return bytes(stream.read())


def lines_of(contents: Sequence[bytes], header: bytes = b"") -> tuple[bytes, list[int]] | None:
    """The lines of files one after the other, without their header, and how many lines each has.

    None if a file does not start with the header.
    """
    parts: list[bytes] = [header]
    counts = []
    for data in contents:
        if not data.startswith(header):
            return None
        body = data[len(header) :]
        if body and not body.endswith(b"\n"):
            body += b"\n"
        parts.append(body)
        counts.append(body.count(b"\n"))
    return b"".join(parts), counts
