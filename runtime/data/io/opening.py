"""Opens files, with decompression and retries, and ahead of their turn where files are remote."""

from __future__ import annotations

import functools
import random
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from runtime.data.io.filesystems import is_local
from runtime.data.io.paths import File

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs

T = TypeVar("T")

_TRANSIENT = re.compile(
    r"AWS Error (INTERNAL_FAILURE|NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|UNKNOWN|REQUEST_TIMEOUT)"
    r"|[Tt]imed? ?out|[Cc]onnection (reset|refused|aborted|closed)|[Tt]emporar|ServerDisconnected"
    r"|\b(429|500|502|503|504)\b"
)
_ATTEMPTS = 5
_FIRST_PAUSE_S = 0.2
_FILES_AHEAD = 16
_BYTES_AHEAD = 64 * 1024 * 1024
_WHOLE_FILE_BYTES = 16 * 1024 * 1024  # a remote file up to this size is fetched by one request
_COMPRESSIONS = {
    ".gz": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".lz4": "lz4",
    ".br": "brotli",
    ".snappy": "snappy",
}


def with_retries(call: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """The result of `call`, which is repeated after errors of a network or a busy server: 5 attempts within 6 s."""
    for attempt in range(_ATTEMPTS):
        try:
            return call()
        except (FileNotFoundError, PermissionError):
            raise
        except Exception as error:
            if attempt == _ATTEMPTS - 1 or not is_transient(error):
                raise
            sleep(_FIRST_PAUSE_S * 2**attempt * random.uniform(0.5, 1.5))
    raise AssertionError("unreachable")


def is_transient(error: Exception) -> bool:
    """Whether a repetition may help."""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    return bool(_TRANSIENT.search(f"{type(error).__name__}: {error}"))


def compression_of(path: str, open_args: dict[str, Any]) -> str | None:
    """The codec that the user names, else the one of the file's ending, else None."""
    if "compression" in open_args:
        named = open_args["compression"]
        return None if named is None else str(named)
    name = path.partition("?")[0].lower()
    return next((codec for ending, codec in _COMPRESSIONS.items() if name.endswith(ending)), None)


def open_stream(filesystem: pafs.FileSystem, file: File, open_args: dict[str, Any]) -> pa.NativeFile:
    """The file's decompressed bytes, in order."""
    import pyarrow as pa

    from runtime.data.io.fsspec_handler import content

    others = {name: value for name, value in open_args.items() if name != "compression"}
    compression = compression_of(file.path, open_args)
    if not is_local(filesystem) and 0 < file.size_bytes <= _WHOLE_FILE_BYTES:
        raw: pa.NativeFile = pa.BufferReader(with_retries(lambda: content(filesystem, file.path)))
    else:
        raw = with_retries(lambda: filesystem.open_input_stream(file.path, compression=None, **others))
    if compression is None:
        return raw
    if compression == "snappy":
        return pa.PythonFile(_snappy(raw), mode="r")
    return pa.CompressedInputStream(raw, compression)


def opened(
    filesystem: pafs.FileSystem, files: Sequence[File], open_args: dict[str, Any]
) -> Iterator[tuple[File, Callable[[], pa.NativeFile]]]:
    """Yields each file with a function that opens it.

    Files of a remote file system are opened, and small ones fetched, by threads while their predecessors are read: at
    most 16 files and 64 MiB ahead.
    """
    if is_local(filesystem) or len(files) == 1:
        for file in files:
            yield file, functools.partial(open_stream, filesystem, file, open_args)
        return
    with ThreadPoolExecutor(_FILES_AHEAD, thread_name_prefix="data-read-ahead") as pool:
        waiting: deque[tuple[File, Future[pa.NativeFile]]] = deque()
        ahead, rest = 0, deque(files)
        try:
            while rest or waiting:
                while rest and len(waiting) < _FILES_AHEAD and (not waiting or ahead < _BYTES_AHEAD):
                    file = rest.popleft()
                    ahead += file.size_bytes
                    waiting.append((file, pool.submit(open_stream, filesystem, file, open_args)))
                file, future = waiting.popleft()
                yield file, future.result
                ahead -= file.size_bytes
        finally:
            for _, future in waiting:
                future.cancel()


def _snappy(raw: pa.NativeFile) -> Any:
    import io

    from runtime.data.io.snappy import decompressed

    with raw:
        return io.BytesIO(decompressed(raw.read()))
