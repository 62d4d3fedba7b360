"""A file system of which one request in a few fails, with an error that nobody else makes."""

from __future__ import annotations

import random
from typing import Any

from fsspec.implementations.local import LocalFileSystem


class FlakyFileSystem(LocalFileSystem):
    """Local files. One in `every` calls of open, read, write and move fails, the same ones each time."""

    cachable = False
    protocol = ("flaky",)

    def __init__(self, every: int = 3) -> None:
        super().__init__()
        self.every = every
        self.chance = random.Random(every)
        self.failures = 0

    def fail_at_times(self) -> None:
        if self.chance.random() < 1 / self.every:
            self.failures += 1
            raise OSError("the cable is loose")

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        self.fail_at_times()
        return FlakyFile(super().open(path, mode, **options), self)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        with self.open(path) as file:
            file.seek(start or 0)
            return bytes(file.read() if end is None else file.read(end - (start or 0)))

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        self.fail_at_times()
        super().mv(path1, path2, **options)


class FlakyFile:
    def __init__(self, file: Any, filesystem: FlakyFileSystem) -> None:
        self._file = file
        self._filesystem = filesystem

    def read(self, *size: int) -> Any:
        self._filesystem.fail_at_times()
        return self._file.read(*size)

    def write(self, data: Any) -> Any:
        self._filesystem.fail_at_times()
        return self._file.write(data)

    def __enter__(self) -> FlakyFile:
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
