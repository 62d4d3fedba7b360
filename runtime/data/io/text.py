"""Lines of text files."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from runtime.data.io.errors import FileReadError
from runtime.data.io.files import FileBasedDatasource
from runtime.data.io.paths import File

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK_BYTES = 16 * 1024 * 1024
_WITH_PLAIN_LINE_ENDS = ("ascii", "cp125", "iso8859", "utf-8")
"""Encodings, by the beginnings of their names, in which the byte 10 is always the end of a line."""


class TextDatasource(FileBasedDatasource):
    """A row per line, in the column "text", without the line's end.

    Lines end as those of `str.splitlines` do.

    Args:
        encoding: The files' encoding.
        drop_empty_lines: Whether lines without any visible character are left out.
    """

    _SIZE_RATIO = 1.1
    _BOUNDARY = re.compile(rb"\n")

    def __init__(
        self, paths: Any, *, encoding: str = "utf-8", drop_empty_lines: bool = True, **options: Any
    ) -> None:
        codecs.lookup(encoding)
        super().__init__(paths, **options)
        self._encoding = encoding
        self._drop_empty_lines = drop_empty_lines

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        import pyarrow as pa

        decoder = codecs.getincrementaldecoder(self._encoding)()
        data, rest, row = f.read(_CHUNK_BYTES), "", 0
        while True:
            following = f.read(_CHUNK_BYTES) if data else b""
            try:
                text = rest + decoder.decode(data, final=not following)
            except UnicodeDecodeError as error:
                reason = f"it is not {self._encoding}: {error}. Give encoding=, for example 'latin-1'."
                raise FileReadError(path, reason, row) from error
            rest = text.splitlines(keepends=True)[-1] if following and text else ""
            lines = text[: len(text) - len(rest)].splitlines()
            row += len(lines)
            if self._drop_empty_lines:
                lines = [line for line in lines if line and not line.isspace()]
            yield pa.table({"text": pa.array(lines, pa.string())})
            if not following:
                return
            data = following

    def _may_split(self, file: File) -> bool:
        encoding = codecs.lookup(self._encoding).name
        plain = encoding.startswith(_WITH_PLAIN_LINE_ENDS) and encoding != "utf-8-sig"
        return plain and super()._may_split(file)

    def _block_schema(self) -> pa.Schema | None:
        import pyarrow as pa

        if self._parser is not None:
            return None
        fields = [pa.field("text", pa.string())]
        return pa.schema(fields + ([pa.field("path", pa.string())] if self._include_paths else []))
