"""What is done with files everywhere. Daemons come up faster without `pathlib` and `shutil`."""

from __future__ import annotations

import contextlib
import os


def remove(path: str) -> None:
    """Removes a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def tail(path: str, limit_bytes: int) -> str:
    """The end of a log.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - limit_bytes))
        return file.read(limit_bytes).decode(errors="replace").strip()


def read(path: str) -> str:
    """A small text file, such as those of the kernel.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def remove_tree(path: str) -> None:
    """Removes a folder with all that is in it, as far as that is possible."""
    if os.path.lexists(path):
        import shutil  # few processes ever need it

        shutil.rmtree(path, ignore_errors=True)
