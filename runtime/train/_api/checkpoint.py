"""Checkpoints."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Checkpoint:
    """A folder with what a training function goes on from.

    Args:
        path: of the folder.
        filesystem: not supported yet.
    """

    def __init__(self, path: str, filesystem: Any = None) -> None:
        if filesystem is not None or "://" in str(path):
            raise NotImplementedError("Checkpoints are in local folders for now.")
        self.path = str(path)
        self.filesystem = filesystem

    def __repr__(self) -> str:
        return f"Checkpoint(path={self.path!r})"

    @classmethod
    def from_directory(cls, path: str) -> Checkpoint:
        """The checkpoint in a local folder."""
        return cls(path)

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """The folder, to be read."""
        yield self.path

    def to_directory(self, path: str | None = None) -> str:
        """Copies it into a folder, a new temporary one by default; returns that."""
        target = path or tempfile.mkdtemp(prefix="checkpoint-")
        shutil.copytree(self.path, target, dirs_exist_ok=True)
        return target
