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


class Slow(DirFileSystem):  # type: ignore[misc]
    """Notes what is opened for reading, which no run in a hurry should wait for."""

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "rb":
            with open(f"{self.path}.read", "a") as file:
                file.write(f"{pathlib.Path(path).name}\n")
        return super().open(path, mode, **options)


def slow_storage_in(folder: pathlib.Path) -> Slow:
    """One in a new folder."""
    folder.mkdir()
    return Slow(path=str(folder), fs=fsspec.filesystem("file"))


def files_read(folder: pathlib.Path) -> list[str]:
    """The files that were read there, by all processes."""
    log = pathlib.Path(f"{folder}.read")
    return log.read_text().splitlines() if log.exists() else []


def storage_in(folder: pathlib.Path) -> Flaky:
    """One in a new folder."""
    folder.mkdir()
    return Flaky(path=str(folder), fs=fsspec.filesystem("file"))


def failures(folder: pathlib.Path) -> int:
    """How many writes have failed there."""
    log = pathlib.Path(f"{folder}.failed")
    return len(log.read_text().splitlines()) if log.exists() else 0
