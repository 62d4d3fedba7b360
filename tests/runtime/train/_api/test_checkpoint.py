"""Checkpoints, local and remote."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import uuid

import fsspec
import fsspec.asyn
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from runtime.train import Checkpoint, StorageError
from runtime.train._run import node_copies

fsspec.asyn.get_loop()  # starts its thread


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def remote() -> str:
    """A URI with the files a and b/c."""
    folder = f"/{uuid.uuid4().hex}"
    MemoryFileSystem().pipe({f"{folder}/a": b"1", f"{folder}/b/c": b"2"})
    return f"memory:/{folder}"


def copies(tmp_path: pathlib.Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "tmp").rglob("*") if path.is_dir())[1:]


class TestLocal:
    def test_the_folder_itself_is_given(self, tmp_path: pathlib.Path) -> None:
        (tmp_path / "a").write_text("1")
        for path in (tmp_path, str(tmp_path), f"file://{tmp_path}"):
            with Checkpoint(path).as_directory() as folder:
                assert folder == str(tmp_path)
        assert Checkpoint.from_directory(tmp_path).path == str(tmp_path)
        assert (tmp_path / "a").exists()

    def test_is_copied(self, tmp_path: pathlib.Path) -> None:
        (tmp_path / "x/y").mkdir(parents=True)
        (tmp_path / "x/y/a").write_text("1")
        checkpoint = Checkpoint(tmp_path / "x")
        assert checkpoint.to_directory(tmp_path / "copy") == str(tmp_path / "copy")
        assert (tmp_path / "copy/y/a").read_text() == "1"
        fresh = pathlib.Path(checkpoint.to_directory())
        assert [path.name for path in fresh.rglob("*")] == ["y", "a"]
        assert (tmp_path / "x/y/a").exists()

    def test_a_folder_that_is_not_there(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(StorageError, match=r"Cannot read .*/gone: .*Check that the path exists"):
            Checkpoint(tmp_path / "gone").to_directory()

    def test_metadata_are_in_a_file(self, tmp_path: pathlib.Path) -> None:
        checkpoint = Checkpoint(tmp_path)
        assert checkpoint.get_metadata() == {}
        checkpoint.set_metadata({"a": 1})
        checkpoint.update_metadata({"b": 2})
        assert Checkpoint(tmp_path).get_metadata() == {"a": 1, "b": 2}
        assert (tmp_path / ".metadata.json").exists()


class TestNaming:
    def test_equal_ones_name_the_same_folder(self, tmp_path: pathlib.Path, remote: str) -> None:
        memory = MemoryFileSystem()
        groups = [
            {Checkpoint("/a"), Checkpoint.from_directory("/a/"), Checkpoint("file:///a")},
            {Checkpoint(remote), pickle.loads(pickle.dumps(Checkpoint(remote)))},
            {Checkpoint("/a", memory), pickle.loads(pickle.dumps(Checkpoint("/a", memory)))},
        ]
        assert [len(group) for group in groups] == [1, 1, 1]
        assert len(set.union(*groups)) == 3
        assert Checkpoint("/a") != "/a"

    def test_path_and_file_system(self, remote: str) -> None:
        checkpoint = Checkpoint(remote)
        assert (checkpoint.filesystem, checkpoint.path) == (
            MemoryFileSystem(),
            remote.removeprefix("memory:/"),
        )
        pafs = pytest.importorskip("pyarrow.fs")
        local = Checkpoint("/a")
        assert isinstance(local.filesystem, pafs.LocalFileSystem)
        assert local.path == "/a"

    def test_is_no_path(self) -> None:
        with pytest.raises(TypeError, match="as_directory"):
            os.fspath(Checkpoint("/a"))  # type: ignore[call-overload]

    def test_says_what_it_is(self) -> None:
        assert repr(Checkpoint("/a")) == "Checkpoint(path='/a')"
        assert repr(Checkpoint("s3://k:s@b/a")) == "Checkpoint(path='s3://...@b/a')"
        assert (
            repr(Checkpoint("a", MemoryFileSystem())) == "Checkpoint(path='a', filesystem=MemoryFileSystem)"
        )


class TestRemote:
    def test_is_downloaded_once_and_removed_after_the_last_use(
        self, tmp_path: pathlib.Path, remote: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        downloads: list[str] = []
        fill = Checkpoint._download
        monkeypatch.setattr(
            Checkpoint, "_download", lambda self, target: (downloads.append(target), fill(self, target))
        )
        with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
            folder = first.enter_context(Checkpoint(remote).as_directory())
            assert pathlib.Path(folder, "b/c").read_bytes() == b"2"
            assert second.enter_context(Checkpoint(remote).as_directory()) == folder
            first.close()
            assert pathlib.Path(folder, "a").read_bytes() == b"1"
        assert len(downloads) == 1
        assert copies(tmp_path) == []
        assert list((tmp_path / "tmp").rglob("*.lock")) == []

    def test_many_threads(self, tmp_path: pathlib.Path, remote: str) -> None:
        seen, errors = [], []

        def use() -> None:
            try:
                for _ in range(5):
                    with Checkpoint(remote).as_directory() as folder:
                        seen.append(pathlib.Path(folder, "b/c").read_bytes())
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        assert seen == [b"2"] * 40
        assert copies(tmp_path) == []

    def test_what_a_killed_process_has_left_is_replaced(self, tmp_path: pathlib.Path) -> None:
        code = f"""
import os, signal, sys, tempfile
tempfile.tempdir = {str(tmp_path / "tmp")!r}
from runtime.train._run import node_copies
with node_copies.shared("there", lambda folder: open(folder + "/old", "w").close()):
    os.kill(os.getpid(), signal.SIGKILL)
"""
        subprocess.run([sys.executable, "-c", code], cwd=pathlib.Path(__file__).parents[4], timeout=60)
        assert len(copies(tmp_path)) == 1

        def fill(folder: str) -> None:
            pathlib.Path(folder, "new").touch()

        with node_copies.shared("there", fill) as folder:
            assert os.listdir(folder) == ["new"]
        assert copies(tmp_path) == []

    def test_a_failed_download_leaves_nothing(self, tmp_path: pathlib.Path) -> None:
        with (
            pytest.raises(StorageError, match="Cannot read memory://nowhere"),
            Checkpoint("memory://nowhere/x").as_directory(),
        ):
            pass
        assert copies(tmp_path) == []

    def test_a_folder_of_another_user_is_not_used(self, tmp_path: pathlib.Path, remote: str) -> None:
        place = tmp_path / f"tmp/train-checkpoints-{os.getuid()}"
        place.mkdir()
        place.chmod(0o777)
        with pytest.raises(PermissionError, match="only its user"), Checkpoint(remote).as_directory():
            pass
