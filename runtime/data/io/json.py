"""JSON files: a value per line, a list of rows, or a single row."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from runtime.data.io.errors import FileReadError
from runtime.data.io.paths import File
from runtime.data.io.together import LinesDatasource, lines_of

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK_BYTES = 32 * 1024 * 1024


class JSONDatasource(LinesDatasource):
    """Rows of JSON files.

    A file that starts with "[" holds one list of rows. Any other one holds rows one after the other, usually one per
    line, and is read piece by piece.

    Args:
        arrow_json_args: Arguments of `pyarrow.json.read_json`: read_options, parse_options.
        lines: Whether every line is a row, even one that starts with "[".
    """

    _SIZE_RATIO = 1.5
    # Nowhere within a row: an object follows another one only after a comma, and strings have no line ends.
    _BOUNDARY = re.compile(rb"\}\s*?\n(?=\s*\{)")

    def __init__(
        self,
        paths: Any,
        *,
        lines: bool = False,
        arrow_json_args: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(paths, **options)
        self._json_args = dict(arrow_json_args or {})
        self._lines = lines

    def _may_split(self, file: File) -> bool:
        if not super()._may_split(file):
            return False
        with self._retries.call(
            lambda: self._filesystem.open_input_stream(file.path, compression=None)
        ) as stream:
            return bool(stream.read(1024).lstrip()[:1] == b"{")  # not a list of rows

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        data = f.read(_CHUNK_BYTES)
        if not data.strip():
            return
        if data.lstrip()[:1] == b"[" and not self._lines:
            yield _table(_parsed(data + f.read(), path), path)
            return
        rows = 0
        while data:
            following = f.read(_CHUNK_BYTES)
            end = data.rfind(b"\n") + 1 if following else len(data)
            if end:
                table = self._of_rows(data[:end], path, rows)
                rows += table.num_rows
                yield table
            data = data[end:] + following

    def _parse_together(self, contents: Sequence[bytes], path: str) -> tuple[pa.Table, list[int]] | None:
        if not self._lines and any(data.lstrip()[:1] == b"[" for data in contents):
            return None
        found = lines_of(contents)
        if found is None:
            return None
        table = self._arrow(found[0])
        return (table, found[1]) if table.num_rows == sum(found[1]) else None

    def _of_rows(self, data: bytes, path: str, first_row: int) -> pa.Table:
        """The table of rows that follow one another; Arrow's parser first, Python's where it gives up."""
        import pyarrow as pa

        try:
            return self._arrow(data)
        except pa.ArrowInvalid:
            return _table(_one_by_one(data, path, first_row), path)

    def _arrow(self, data: bytes) -> pa.Table:
        import pyarrow.json as pajson

        arguments = dict(self._json_args)
        # One block, so that types are inferred from all rows, and a row may be as long as it likes.
        arguments.setdefault(
            "read_options", pajson.ReadOptions(block_size=max(len(data), 1), use_threads=False)
        )
        return pajson.read_json(io.BytesIO(data), **arguments)


def _one_by_one(data: bytes, path: str, first_row: int) -> list[Any]:
    """Rows that are separated by nothing or white space. Raises FileReadError with the row that is no JSON."""
    text, decoder = _text(data, path), json.JSONDecoder()
    rows: list[Any] = []
    at = 0
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text):
            return rows
        try:
            row, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            line = text.count("\n", 0, error.pos) + 1
            reason = f"{error.msg} (line {line} of this part: {text[at : at + 80]!r})"
            raise FileReadError(path, reason, first_row + len(rows)) from error
        rows.append(row)


def _parsed(data: bytes, path: str) -> list[Any]:
    try:
        rows = json.loads(_text(data, path))
    except json.JSONDecodeError as error:
        raise FileReadError(path, f"{error}") from error
    return list(rows)


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileReadError(path, f"it is not UTF-8: {error}") from error


def _table(rows: list[Any], path: str) -> pa.Table:
    import pyarrow as pa

    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            raise FileReadError(path, f"a row must be an object, not {json.dumps(row)[:80]}", index)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            row = next(index for index, value in enumerate(values) if _is_other(value, values))
            reason = (
                f"column {name!r} has values of different types, for example {values[row]!r:.80}: {error}"
            )
            raise FileReadError(path, reason, row) from error
    return pa.table(columns)


def _is_other(value: Any, values: list[Any]) -> bool:
    first = next(present for present in values if present is not None)
    return value is not None and type(value) is not type(first)
