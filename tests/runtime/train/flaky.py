"""A storage that fails now and then, for runs in several processes."""

from __future__ import annotations

import pathlib
import random
from typing import Any

import fsspec
import fsspec.asyn
from fsspec.implementations.dirfs import DirFileSystem

fsspec.asyn.get_loop()  # starts its thread, which is no leak of a test


class Flaky(DirFileSystem):  # type: ignore[misc]
    """One write in ten fails, at random."""

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        if random.random() < 0.1:
            with open(f"{self.path}.failed", "a") as file:
                file.write(f"{path}\n")
            raise ConnectionResetError("the storage has hung up")
        super().pipe_file(path, value, **options)


def storage_in(folder: pathlib.Path) -> Flaky:
    """One in a new folder."""
    folder.mkdir()
    return Flaky(path=str(folder), fs=fsspec.filesystem("file"))


def failures(folder: pathlib.Path) -> int:
    """How many writes have failed there."""
    log = pathlib.Path(f"{folder}.failed")
    return len(log.read_text().splitlines()) if log.exists() else 0
