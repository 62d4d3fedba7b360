"""Opens files and parts of them, with decompression, and ahead of their turn where files are remote."""

from __future__ import annotations

import functools
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from runtime.data.io.filesystems import is_local
from runtime.data.io.paths import File

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs

_FILES_AHEAD = 16
_BYTES_AHEAD = 64 * 1024 * 1024
_WHOLE_FILE_BYTES = 16 * 1024 * 1024  # a remote file up to this size is fetched by one request
_PART_BUFFER_BYTES = 8 * 1024 * 1024
_FIRST_WINDOW_BYTES = 64 * 1024
_COMPRESSIONS = {
    ".gz": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".lz4": "lz4",
    ".br": "brotli",
    ".snappy": "snappy",
}


def compression_of(path: str, open_args: dict[str, Any]) -> str | None:
    """The codec that the user names, else the one of the file's ending, else None."""
    if "compression" in open_args:
        named = open_args["compression"]
        return None if named is None else str(named)
    name = path.partition("?")[0].lower()
    return next((codec for ending, codec in _COMPRESSIONS.items() if name.endswith(ending)), None)


def is_splittable(filesystem: pafs.FileSystem, file: File, open_args: dict[str, Any]) -> bool:
    """Whether tasks may begin in the middle of the file: it is not compressed, and its server gives parts of it."""
    return compression_of(file.path, open_args) is None and "http" not in filesystem.type_name


def open_stream(
    filesystem: pafs.FileSystem,
    file: File,
    open_args: dict[str, Any],
    boundary: re.Pattern[bytes] | None = None,
) -> pa.NativeFile:
    """The file's decompressed bytes, in order; of a part of a file those of the rows that belong to it.

    Args:
        boundary: Matches up to where a row ends; for parts.
    """
    if not file.is_whole:
        assert boundary is not None
        return _open_part(filesystem, file, boundary)
    return _open_whole(filesystem, file, open_args)


def _open_whole(filesystem: pafs.FileSystem, file: File, open_args: dict[str, Any]) -> pa.NativeFile:
    import pyarrow as pa

    from runtime.data.io.fsspec_handler import content

    others = {name: value for name, value in open_args.items() if name != "compression"}
    compression = compression_of(file.path, open_args)
    if not is_local(filesystem) and 0 < file.size_bytes <= _WHOLE_FILE_BYTES:
        raw: pa.NativeFile = pa.BufferReader(content(filesystem, file.path))
    else:
        raw = filesystem.open_input_stream(file.path, compression=None, **others)
    if compression is None:
        return raw
    if compression == "snappy":
        return pa.PythonFile(_snappy(raw), mode="r")
    return pa.CompressedInputStream(raw, compression)


def _open_part(filesystem: pafs.FileSystem, file: File, boundary: re.Pattern[bytes]) -> pa.NativeFile:
    import pyarrow as pa

    source = filesystem.open_input_file(file.path)
    start = row_start(source, file.start, boundary)
    end = row_start(source, file.start + file.size_bytes, boundary)
    stream = source.get_stream(start, max(0, end - start))
    return stream if is_local(filesystem) else pa.BufferedInputStream(stream, _PART_BUFFER_BYTES)


def row_start(source: pa.NativeFile, offset: int, boundary: re.Pattern[bytes]) -> int:
    """Where the first row begins that does not begin before a byte or at it; the file's length if there is none.

    The first row of the file begins at byte 0. So parts that meet at a byte share no row and leave none out.
    """
    if offset == 0:
        return 0
    size = int(source.size())
    window = _FIRST_WINDOW_BYTES
    while offset < size:
        found = boundary.search(source.read_at(min(window, size - offset), offset))
        if found is not None:
            return offset + found.end()
        if offset + window >= size:
            break
        window *= 4
    return size


def opened(
    filesystem: pafs.FileSystem,
    files: Sequence[File],
    open_args: dict[str, Any],
    boundary: re.Pattern[bytes] | None = None,
) -> Iterator[tuple[File, Callable[[], pa.NativeFile]]]:
    """Yields each file with a function that opens it, for the first time or once more.

    Files of a remote file system are opened, and small ones fetched, by threads while their predecessors are read: at
    most 16 files and 64 MiB ahead.
    """

    def open_one(file: File) -> pa.NativeFile:
        return open_stream(filesystem, file, open_args, boundary)

    if is_local(filesystem) or len(files) == 1:
        for file in files:
            yield file, functools.partial(open_one, file)
        return
    with ThreadPoolExecutor(_FILES_AHEAD, thread_name_prefix="data-read-ahead") as pool:
        waiting: deque[tuple[File, Future[pa.NativeFile]]] = deque()
        ahead, rest = 0, deque(files)
        try:
            while rest or waiting:
                while rest and len(waiting) < _FILES_AHEAD and (not waiting or ahead < _BYTES_AHEAD):
                    file = rest.popleft()
                    ahead += file.size_bytes
                    waiting.append((file, pool.submit(open_one, file)))
                file, future = waiting.popleft()
                yield file, _first_then([future.result], functools.partial(open_one, file))
                ahead -= file.size_bytes
        finally:
            for _, future in waiting:
                future.cancel()


def _first_then(
    first: list[Callable[[], pa.NativeFile]], later: Callable[[], pa.NativeFile]
) -> Callable[[], pa.NativeFile]:
    """Opens by `first` once, and by `later` after that."""
    return lambda: (first.pop() if first else later)()


def _snappy(raw: pa.NativeFile) -> Any:
    import io

    from runtime.data.io.snappy import decompressed

    with raw:
        return io.BytesIO(decompressed(raw.read()))
