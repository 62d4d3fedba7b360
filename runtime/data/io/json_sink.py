"""Writes JSON files with a row per line."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runtime.data.io.rolling import StreamingFileDatasink, Writer

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 10_000


class JSONDatasink(StreamingFileDatasink):
    """Writes JSON lines: NaN is null, times are milliseconds since 1970, bytes that are no UTF-8 are base64.

    Args:
        pandas_json_args: Arguments of `pandas.DataFrame.to_json`, by which blocks are then written.
        pandas_json_args_fn: Makes more of them in the task, for those that do not pickle.
    """

    def __init__(
        self,
        path: str,
        *,
        pandas_json_args: dict[str, Any] | None = None,
        pandas_json_args_fn: Callable[[], dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, file_format="json", **options)
        self._arguments = dict(pandas_json_args or {})
        self._arguments_fn = pandas_json_args_fn

    def open_writer(self, file: pa.NativeFile, schema: pa.Schema) -> Writer:
        arguments = {**self._arguments, **(self._arguments_fn() if self._arguments_fn else {})}
        return _PandasWriter(file, arguments) if arguments else _LinesWriter(file)


class _PandasWriter:
    def __init__(self, file: pa.NativeFile, arguments: dict[str, Any]) -> None:
        self._file = file
        self._arguments = {"orient": "records", **arguments}
        self._arguments.setdefault("lines", self._arguments["orient"] == "records")

    def write(self, table: pa.Table) -> None:
        from runtime.data._block import batch

        text = batch.to_pandas(table).to_json(None, **self._arguments)
        self._file.write(text.encode() if text.endswith("\n") else text.encode() + b"\n")

    def close(self) -> None:
        """All is written."""


class _LinesWriter:
    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file

    def write(self, table: pa.Table) -> None:
        from runtime.data._block import batch

        for start in range(0, table.num_rows, _ROWS_AT_ONCE):
            lines = [line(row) for row in batch.rows(table.slice(start, _ROWS_AT_ONCE))]
            self._file.write(("\n".join(lines) + "\n").encode())

    def close(self) -> None:
        """All is written."""


def line(row: dict[str, Any]) -> str:
    """A row as JSON, without the end of the line. Raises TypeError for a value that JSON cannot express."""
    try:
        return json.dumps(row, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_expressed)
    except ValueError:  # NaN or infinite somewhere
        return json.dumps(_finite(row), separators=(",", ":"), ensure_ascii=False, default=_expressed)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _expressed(value: Any) -> Any:
    if hasattr(value, "tolist"):  # arrays and scalars of numpy
        return _finite(value.tolist())
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        return int(moment.timestamp() * 1000)
    if isinstance(value, datetime.date):
        return _expressed(datetime.datetime(value.year, value.month, value.day))
    if isinstance(value, datetime.timedelta):
        return int(value.total_seconds() * 1000)
    if isinstance(value, datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON: {value!r:.100}")
