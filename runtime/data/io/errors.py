"""Errors of reading and writing that name the file."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


class FileReadError(ValueError):
    """A file could not be read.

    Attributes:
        path: The file.
        row: The first row, counted from 0, that could not be read; None where the format does not say.
        reason: What is wrong with it.
    """

    def __init__(self, path: str, reason: str, row: int | None = None) -> None:
        self.path = path
        self.reason = reason
        self.row = row
        super().__init__(path, reason, row)

    def __str__(self) -> str:
        where = self.path if self.row is None else f"{self.path}, row {self.row}"
        return f"Cannot read {where}: {self.reason}"


def raise_for(path: str, error: Exception, start: int = 0) -> NoReturn:
    """Raises `error` so that it names `path`: as `FileReadError`, or as it is where it does so already.

    Args:
        start: Where the part of the file begins in which rows are counted.
    """
    if isinstance(error, FileNotFoundError | PermissionError | ImportError):
        raise error
    if not isinstance(error, FileReadError):
        reason = f"{type(error).__name__}: {error}"
    elif not start:
        raise error
    else:
        reason = error.reason if error.row is None else f"row {error.row}: {error.reason}"
    if start:
        reason += f" (rows count from the first that begins after byte {start})"
    raise FileReadError(path, reason) from error


class FileWriteError(OSError):
    """A file could not be written. Nothing of the write is left at the target.

    Attributes:
        path: The file.
        reason: What the file system said.
    """

    def __init__(self, path: str, reason: str, number: int | None = None) -> None:
        advice = _ADVICE.get(number or 0, "")
        super().__init__(number, f"Cannot write {path}: {reason}{advice and f'. {advice}'}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return FileWriteError, (self.path, self.reason, self.errno)

    def __str__(self) -> str:
        return str(self.strerror)


_NO_SPACE = "Free some space there, or write to another path"
_ADVICE = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EFBIG: "Files there may not be so large: set max_rows_per_file, or write to another path",
    errno.EACCES: "This user may not write there: change the folder's permissions, or write to another path",
    errno.EPERM: "This user may not write there: change the folder's permissions, or write to another path",
    errno.EROFS: "The file system is read-only: write to another path",
    errno.ENOENT: "Its folder was removed during the write: write again when nothing else removes it",
}


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Errors of the file system within are `FileWriteError`s that name `path`."""
    try:
        yield
    except FileWriteError:
        raise
    except OSError as error:
        raise FileWriteError(path, f"{type(error).__name__}: {error}", error.errno) from error
