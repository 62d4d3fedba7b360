"""Errors of reading and writing that name the file."""

from __future__ import annotations

from typing import NoReturn


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


def raise_for(path: str, error: Exception) -> NoReturn:
    """Raises `error` so that it names `path`: as `FileReadError`, or as it is where it does so already."""
    if isinstance(error, FileReadError | FileNotFoundError | PermissionError | ImportError):
        raise error
    raise FileReadError(path, f"{type(error).__name__}: {error}") from error


def missing(library: str, what: str, package: str | None = None) -> ImportError:
    """The error for a library that `what` needs and that is not installed."""
    return ImportError(f"{what} needs {library}, which is not installed: pip install {package or library}")
