"""What a trial prints, written to files of its folder as well."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO


class Tee:
    """A stream that writes to another and to a file.

    Args:
        stream: the other.
        path: of the file, which is appended to.
    """

    def __init__(self, stream: TextIO, path: str) -> None:
        self._stream = stream
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115  # as long as the process

    def write(self, text: str) -> int:
        """Writes to both."""
        self._file.write(text)
        return self._stream.write(text)

    def flush(self) -> None:
        """Flushes both."""
        self._file.flush()
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def write_to(folder: str, stdout: str, stderr: str) -> None:
    """Has what this process prints written to files, too.

    Args:
        folder: of the files, made if it does not exist.
        stdout, stderr: their names; "": not written.
    """
    os.makedirs(folder, exist_ok=True)
    sys.stdout = _teed(sys.stdout, folder, stdout)
    sys.stderr = _teed(sys.stderr, folder, stderr)


def _teed(stream: Any, folder: str, name: str) -> Any:
    plain = stream._stream if isinstance(stream, Tee) else stream
    return Tee(plain, os.path.join(folder, name)) if name else plain
