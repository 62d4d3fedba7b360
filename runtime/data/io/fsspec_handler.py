"""fsspec's file systems as pyarrow uses them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs


class Handler(pafs.FSSpecHandler):  # type: ignore[misc]
    """Opens files without asking first whether they exist: one request less, and errors of the server stay visible."""

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(self.fs.open(path, mode="rb"), mode="r")

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(self.fs.open(path, mode="rb"), mode="r")


def adopt(filesystem: Any) -> pafs.PyFileSystem:
    """A file system of fsspec as one of pyarrow."""
    return pafs.PyFileSystem(Handler(filesystem))


def content(filesystem: pafs.FileSystem, path: str) -> pa.Buffer:
    """A file's bytes, by a single request where the file system can."""
    handler = getattr(filesystem, "handler", None)
    if isinstance(handler, Handler):
        return pa.py_buffer(handler.fs.cat_file(path))
    with filesystem.open_input_stream(path, compression=None) as stream:
        return stream.read_buffer()
