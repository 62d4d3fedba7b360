"""CSV files."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from runtime.data.io.errors import FileReadError, raise_for
from runtime.data.io.paths import File
from runtime.data.io.rolling import StreamingFileDatasink, Writer
from runtime.data.io.together import LinesDatasource, lines_of

if TYPE_CHECKING:
    import pyarrow as pa

_WHOLE_FILE_BYTES = 8 * 1024 * 1024
"""Up to this size a file is parsed at once, so that the types of columns are inferred from all of it."""

_OPTIONS = ("read_options", "parse_options", "convert_options", "memory_pool")


class CSVDatasource(LinesDatasource):
    """Rows of CSV files. The first line names the columns; types are inferred file by file.

    Args:
        arrow_csv_args: Arguments of `pyarrow.csv.open_csv`: read_options, parse_options, convert_options.
    """

    _SIZE_RATIO = 1.5
    _BOUNDARY = re.compile(rb"\n")  # never within a value, unless the options say so

    def __init__(self, paths: Any, *, arrow_csv_args: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(paths, **options)
        self._csv_args = dict(arrow_csv_args or {})
        self._is_part = False
        unknown = sorted(set(self._csv_args) - set(_OPTIONS))
        if unknown:
            raise TypeError(
                f"read_csv does not know the arguments {unknown}; options of pyarrow.csv are {_OPTIONS}."
            )

    def with_columns(self, columns: list[str]) -> Self:
        """A source that reads these columns, in this order."""
        return self._changed(_columns=list(columns))

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        import pyarrow as pa
        import pyarrow.csv as pacsv

        start, more = f.read(_WHOLE_FILE_BYTES), f.read(1)
        if not start and self._is_part:
            return
        if not start:
            raise FileReadError(path, "it is empty; not even a line with the columns' names")
        arguments = self._arguments(path)
        if not more:
            yield _parsed(start, arguments)
            return
        with pacsv.open_csv(pa.PythonFile(_Continued(start + more, f), mode="r"), **arguments) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])

    def _may_split(self, file: File) -> bool:
        read, parse, convert = (self._csv_args.get(name) for name in _OPTIONS[:3])
        return (
            file.size_bytes > _WHOLE_FILE_BYTES
            and (read is None or (not read.skip_rows and not read.skip_rows_after_names))
            and (read is None or read.encoding in ("utf8", "utf-8"))
            and (parse is None or (not parse.newlines_in_values and not parse.escape_char))
            and (convert is None or not convert.auto_dict_encode)
            and super()._may_split(file)
        )

    def _tables_of(self, file: File, opener: Callable[[], pa.NativeFile]) -> Iterator[pa.Table]:
        if file.is_whole:
            yield from super()._tables_of(file, opener)
            return
        try:
            arguments = self._retries.call(lambda: self._arguments_of_part(file))
        except Exception as error:
            raise_for(file.path, error)
        part = self._changed(_csv_args=arguments, _is_part=True)
        yield from super(CSVDatasource, part)._tables_of(file, opener)

    def _arguments_of_part(self, file: File) -> dict[str, Any]:
        """With the names of columns, and the types that a reader of the whole file infers: those of its first block."""
        import pyarrow as pa
        import pyarrow.csv as pacsv

        arguments = self._arguments(file.path)
        read = copy.copy(arguments.get("read_options")) or pacsv.ReadOptions()
        with self._filesystem.open_input_file(file.path) as source:
            start = source.read(max(read.block_size, _WHOLE_FILE_BYTES // 8))
        first_line = start[: start.find(b"\n") + 1]
        shape = {name: arguments[name] for name in ("read_options", "parse_options") if name in arguments}
        names = pacsv.read_csv(pa.BufferReader(first_line), **shape).column_names
        with pacsv.open_csv(pa.BufferReader(start[: start.rfind(b"\n") + 1]), **arguments) as reader:
            inferred = {field.name: field.type for field in reader.schema}
        convert = copy.copy(arguments.get("convert_options")) or pacsv.ConvertOptions()
        convert.column_types = {**inferred, **convert.column_types}
        if file.start:
            read.column_names, read.autogenerate_column_names = names, False
        return {**arguments, "read_options": read, "convert_options": convert}

    def _parse_together(self, contents: Sequence[bytes], path: str) -> tuple[pa.Table, list[int]] | None:
        end = contents[0].find(b"\n") + 1
        header = contents[0][:end]
        # Options may change what the first lines mean, and a quoted name may have a line end.
        if not header or b'"' in header or not {"convert_options", "memory_pool"}.issuperset(self._csv_args):
            return None
        found = lines_of(contents, header)
        if found is None:
            return None
        table = _parsed(found[0], self._arguments(path))
        return (table, found[1]) if table.num_rows == sum(found[1]) else None

    def _arguments(self, path: str) -> dict[str, Any]:
        """The user's options, and that only wanted columns are converted."""
        import pyarrow.csv as pacsv

        wanted = self._columns_of_file(path)
        convert = copy.copy(self._csv_args.get("convert_options")) or pacsv.ConvertOptions()
        if not wanted or convert.include_columns:
            return self._csv_args
        convert.include_columns = wanted
        return {**self._csv_args, "convert_options": convert}


def _parsed(data: bytes, arguments: dict[str, Any]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    try:
        return pacsv.read_csv(pa.BufferReader(data), **arguments)
    except pa.ArrowInvalid:
        # Only a parser in one thread knows the number of the row that is wrong.
        options = copy.copy(arguments.get("read_options")) or pacsv.ReadOptions()
        options.use_threads = False
        return pacsv.read_csv(pa.BufferReader(data), **{**arguments, "read_options": options})


class _Continued(io.RawIOBase):
    """What was read of a stream already, and then the stream."""

    def __init__(self, start: bytes, stream: pa.NativeFile) -> None:
        self._start = memoryview(start)
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        part = bytes(self._start if size < 0 else self._start[:size])
        self._start = self._start[len(part) :]
        if size < 0:
            return part + bytes(self._stream.read())
        # A short block may be less than a row, which Arrow takes for an error.
        while len(part) < size and (more := bytes(self._stream.read(size - len(part)))):
            part += more
        return part


class CSVDatasink(StreamingFileDatasink):
    """Writes CSV files with a header.

    Args:
        arrow_csv_args: Arguments of `pyarrow.csv.CSVWriter`, for example write_options.
        arrow_csv_args_fn: Makes more of them in the task, for those that do not pickle.
    """

    def __init__(
        self,
        path: str,
        *,
        arrow_csv_args: dict[str, Any] | None = None,
        arrow_csv_args_fn: Callable[[], dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, file_format="csv", **options)
        self._arguments = dict(arrow_csv_args or {})
        self._arguments_fn = arrow_csv_args_fn
        options_given = self._arguments.pop("write_options", None)
        # WriteOptions themselves do not pickle.
        names = ("include_header", "batch_size", "delimiter", "quoting_style")
        self._write_options = {
            name: getattr(options_given, name) for name in names if options_given is not None
        }

    def open_writer(self, file: pa.NativeFile, schema: pa.Schema) -> Writer:
        import pyarrow as pa
        import pyarrow.csv as pacsv

        arguments = {"write_options": pacsv.WriteOptions(**self._write_options), **self._arguments}
        arguments.update(self._arguments_fn() if self._arguments_fn else {})
        for field in schema:
            if pa.types.is_nested(field.type) or isinstance(field.type, pa.BaseExtensionType):
                raise ValueError(
                    f"Column {field.name!r} of type {field.type} does not fit into CSV; drop it, make it a string,"
                    " or write Parquet or JSON."
                )
        writer: Writer = pacsv.CSVWriter(file, schema, **arguments)
        return writer
