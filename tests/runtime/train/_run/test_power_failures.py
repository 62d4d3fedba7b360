"""A manifest is written after all that it names is on the disk. A power failure cannot be had here, so the calls that
survive one are watched: each is the real one."""

from __future__ import annotations

import errno
import os
import pathlib
from typing import Any

import pytest

from runtime.train._api.exceptions import StorageError
from runtime.train._run.storage import RunStorage
from tests.runtime.train._run.conftest import folder_of, never

FILES = {"model": b"m" * 3_000_000, "inner__deep__state": b"state", "inner__empty": b""}


class Disk:
    """What is on the disk: by inode, the size that a file had, or the names that a folder had, when it was
    synchronized."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known: dict[int, Any] = {}
        self.fails_once: OSError | None = None
        self._fsync, self._replace = os.fsync, os.replace
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "replace", self.replace)

    def fsync(self, descriptor: int) -> None:
        error, self.fails_once = self.fails_once, None
        if error is not None:
            raise error
        self._fsync(descriptor)
        facts = os.fstat(descriptor)
        is_folder = os.path.isdir(f"/proc/self/fd/{descriptor}")
        self.known[facts.st_ino] = {*os.listdir(descriptor)} if is_folder else facts.st_size

    def replace(self, draft: str, path: str) -> None:
        if path.endswith("manifest.json"):
            self.check(pathlib.Path(path).parent)  # without the manifest
        self._replace(draft, path)

    def check(self, folder: pathlib.Path) -> None:
        """All files of a checkpoint and their names are on the disk."""
        for path in folder.rglob("*"):
            facts = path.stat()
            if path.is_file():
                assert self.known.get(facts.st_ino) == facts.st_size, path
            assert path.name in self.known[path.parent.stat().st_ino], path


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def storage_in(path: pathlib.Path) -> RunStorage:
    storage = RunStorage(str(path / "runs"), "run")
    storage.open()
    return storage


def test_files_and_names_come_before_the_manifest(tmp_path: pathlib.Path, disk: Disk) -> None:
    storage = storage_in(tmp_path)
    parts = []
    for rank in range(2):
        own = folder_of(tmp_path / f"own-{rank}", **{f"{name}_{rank}": data for name, data in FILES.items()})
        parts.append(storage.upload(own, "a", rank, never))
    storage.commit("a", parts, {})
    disk.check(tmp_path / "runs/run/a")  # with the manifest
    assert len([*(tmp_path / "runs/run/a").rglob("*")]) == 2 * len(FILES) + 3
    storage.commit("empty", [storage.upload(folder_of(tmp_path / "nothing"), "empty", 0, never)], {})
    disk.check(tmp_path / "runs/run/empty")
    assert {"a", "empty"} <= disk.known[(tmp_path / "runs/run").stat().st_ino]


def test_a_file_that_could_not_be_written_out_is_copied_again(tmp_path: pathlib.Path, disk: Disk) -> None:
    storage = storage_in(tmp_path)
    disk.fails_once = OSError(errno.EIO, os.strerror(errno.EIO))
    part = storage.upload(folder_of(tmp_path / "own", **FILES), "a", 0, never)
    storage.commit("a", [part], {})
    disk.check(tmp_path / "runs/run/a")
    assert disk.fails_once is None


def test_a_disk_that_is_full_then_is_an_error_and_leaves_no_checkpoint(
    tmp_path: pathlib.Path, disk: Disk
) -> None:
    storage = storage_in(tmp_path)
    disk.fails_once = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(StorageError, match=r"No space left on device\. Free space"):
        storage.upload(folder_of(tmp_path / "own", **FILES), "a", 0, never)
    storage.open()
    assert not (tmp_path / "runs/run/a").exists()
    assert not storage.committed()
