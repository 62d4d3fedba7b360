"""Storages for the tests: local, remote ones by fsspec and pyarrow, and remote ones that fail."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import fsspec
import fsspec.asyn
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from runtime.train._api.checkpoint import Checkpoint
from runtime.train._run import calls
from runtime.train._run.storage import RunStorage

fsspec.asyn.get_loop()  # starts its thread

KINDS = ("local", "objects", "folders", "arrow")


class Flaky(MemoryFileSystem):  # type: ignore[misc]
    """Each n-th write fails."""

    cachable = False

    def __init__(self, every: int = 10, error: Exception | None = None) -> None:
        super().__init__()
        self.every = every
        self.error = error or ConnectionResetError("the storage has hung up")
        self.writes = itertools.count(1)
        self.failed = 0

    def _count(self) -> None:
        if next(self.writes) % self.every == 0:
            self.failed += 1
            raise self.error

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        self._count()
        super().pipe_file(path, value, **options)

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if "w" in mode:
            self._count()
        return super().open(path, mode, **options)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "FIRST_WAIT_S", 0.001)


@pytest.fixture
def memory() -> Iterator[str]:
    """A folder in fsspec's memory file system."""
    folder = f"/{uuid.uuid4().hex}"
    yield folder
    if (filesystem := MemoryFileSystem()).exists(folder):
        filesystem.rm(folder, recursive=True)


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: pathlib.Path, memory: str) -> RunStorage:
    """The storage of a run; "objects" has no folders, "folders" has, "arrow" is a file system of pyarrow."""
    if request.param == "local":
        return RunStorage(str(tmp_path / "runs"), "run")
    if request.param == "objects":
        return RunStorage(f"memory:/{memory}/runs", "run")
    (tmp_path / "remote").mkdir()
    if request.param == "folders":
        inner = fsspec.filesystem("dir", path=str(tmp_path / "remote"), fs=fsspec.filesystem("file"))
        return RunStorage("runs", "run", inner)
    pafs = pytest.importorskip("pyarrow.fs")
    return RunStorage("runs", "run", pafs.SubTreeFileSystem(str(tmp_path / "remote"), pafs.LocalFileSystem()))


def folder_of(path: pathlib.Path, **files: bytes | str) -> Checkpoint:
    """A checkpoint with files; "__" in a name separates folders."""
    for name, content in files.items():
        file = path / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.mkdir(exist_ok=True)
    return Checkpoint.from_directory(path)


def content(checkpoint: Checkpoint) -> dict[str, bytes]:
    """The files of a checkpoint, without its manifest."""
    with checkpoint.as_directory() as folder:
        root = pathlib.Path(folder)
        return {
            str(file.relative_to(root)): file.read_bytes()
            for file in root.rglob("*")
            if file.is_file() and file.name != "manifest.json"
        }


def never() -> bool:
    return False


@contextlib.contextmanager
def small_disk(path: pathlib.Path) -> Iterator[pathlib.Path]:
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", path], capture_output=True)
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)
