"""Files of a checkpoint that come from copies, checked against the manifest in the storage."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem

from runtime.train import Checkpoint
from runtime.train._core.manifest import FileRecord, PartManifest
from runtime.train._run import near
from runtime.train._run.storage import RunStorage
from tests.runtime.train._run.conftest import content, folder_of, never


class Slow(DirFileSystem):  # type: ignore[misc]
    """Notes what is read; each is the way to a far storage and back."""

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir()
        super().__init__(path=str(folder), fs=fsspec.filesystem("file"))
        self.read: list[str] = []

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "rb":
            self.read.append(pathlib.Path(path).name)
        return super().open(path, mode, **options)


class Copies(near.NearFiles):
    """Those of a test, without an object store."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__([])
        self._files = files

    def read(self) -> Mapping[str, memoryview]:
        return {name: memoryview(data) for name, data in self._files.items()}


@pytest.fixture
def slow(tmp_path: pathlib.Path) -> Slow:
    return Slow(tmp_path / "remote")


@pytest.fixture
def checkpoint(tmp_path: pathlib.Path, slow: Slow) -> Checkpoint:
    storage = RunStorage("runs", "run", slow)
    storage.open()
    part = storage.upload(folder_of(tmp_path / "own", a=b"aaa", deep__b=b"bbb"), "check", 0, never)
    return storage.commit("check", [part], {})


@pytest.mark.parametrize(
    ("copies", "read"),
    [
        ({"a": b"aaa", "deep/b": b"bbb"}, []),
        ({"a": b"aaa"}, ["b"]),
        ({"a": b"aaa", "deep/b": b"bbc"}, ["b"]),
        ({"a": b"aaa", "deep/b": b"bb"}, ["b"]),
        ({"a": b"aaa", "deep/b": b"bbb", "c": b"no file of the checkpoint"}, []),
        ({}, ["a", "b"]),
    ],
)
def test_the_storage_is_read_for_what_copies_lack(
    checkpoint: Checkpoint, slow: Slow, copies: dict[str, bytes], read: list[str]
) -> None:
    assert content(checkpoint.with_copies(Copies(copies))) == {"a": b"aaa", "deep/b": b"bbb"}
    assert sorted(slow.read) == read


def test_copies_that_are_released_are_not_read(checkpoint: Checkpoint, slow: Slow) -> None:
    near_one = checkpoint.with_copies(Copies({"a": b"aaa", "deep/b": b"bbb"}))
    assert near_one == checkpoint
    near_one.release_copies()
    content(near_one)
    assert sorted(slow.read) == ["a", "b"]


@pytest.mark.parametrize("limit", [0, 5])
def test_what_is_too_large_is_not_copied(tmp_path: pathlib.Path, limit: int) -> None:
    part = PartManifest(0, {"a": FileRecord(3, 0), "b": FileRecord(3, 0)})
    own = folder_of(tmp_path / "own", a=b"aaa", b=b"bbb")
    assert near.copied(*own.resolve(), part, limit) is None
