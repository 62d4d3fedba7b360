"""The folder of a script as a package, with this command line's errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from clusterctl.errors import CliError, UsageProblem
from runtime._packages import archive
from runtime._packages.archive import LIMIT_BYTES, Entry, Package, PackageError, unpack

__all__ = ["LIMIT_BYTES", "Entry", "Package", "manifest", "pack", "unpack"]


def manifest(root: str, excludes: Sequence[str] = (), use_gitignore: bool | None = None) -> list[Entry]:
    """See `archive.manifest`.

    Raises:
        UsageProblem: there are too many files.
        CliError: something cannot be read.
    """
    with _own_errors():
        return archive.manifest(root, excludes, use_gitignore)


def pack(root: str, entries: Sequence[Entry], limit_bytes: int = LIMIT_BYTES) -> Package:
    """See `archive.pack`.

    Raises:
        UsageProblem: the files are too large together.
        CliError: a file cannot be read.
    """
    with _own_errors():
        return archive.pack(root, entries, limit_bytes)


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except PackageError as error:
        kind = UsageProblem if error.too_large else CliError
        raise kind(error.message, error.hint) from error
