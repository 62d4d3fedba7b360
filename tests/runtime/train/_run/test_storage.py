"""The folder of a run, in storages of several kinds."""

from __future__ import annotations

import logging
import os
import pathlib
import pickle
import zlib
from typing import Any

import pytest

from runtime.train import Checkpoint, StorageError
from runtime.train._core import manifest
from runtime.train._core.manifest import FileRecord, PartManifest
from runtime.train._run import files
from runtime.train._run.storage import Cancelled, RunStorage
from tests.runtime.train._run.conftest import content, folder_of, never

BIG = os.urandom(files.SMALL_BYTES + 12345)


def save(storage: RunStorage, folder: pathlib.Path, name: str, step: int) -> Checkpoint:
    checkpoint = folder_of(folder / name, state=str(step))
    return storage.commit(name, [storage.upload(checkpoint, name, 0, never)], {"step": step})


def names(storage: RunStorage) -> list[str]:
    own, run = storage._place()
    return sorted(own.names(run))


class TestEveryKind:
    def test_a_checkpoint_of_two_ranks(self, storage: RunStorage, tmp_path: pathlib.Path) -> None:
        storage.open()
        first = folder_of(tmp_path / "a", model="m", optimizer__0=BIG, empty="")
        second = folder_of(tmp_path / "b", optimizer__1="second")
        parts = [pickle.loads(pickle.dumps(storage)).upload(one, "c", rank, never) for rank, one in
                 enumerate((first, second))]  # fmt: skip
        assert parts[0].files["optimizer/0"] == FileRecord(len(BIG), zlib.crc32(BIG))
        assert storage.committed() == []
        committed = storage.commit("c", parts, {"loss": 0.5})
        assert content(committed) == {
            "model": b"m", "optimizer/0": BIG, "optimizer/1": b"second", "empty": b""
        }  # fmt: skip
        assert (tmp_path / "a/model").exists()
        [again] = pickle.loads(pickle.dumps(storage)).committed()
        assert (again.name, again.checkpoint, again.metrics) == ("c", committed, {"loss": 0.5})
        assert content(pickle.loads(pickle.dumps(again.checkpoint))) == content(committed)

    def test_checkpoints_come_in_the_order_of_their_commits(
        self, storage: RunStorage, tmp_path: pathlib.Path
    ) -> None:
        storage.open()
        for step, name in enumerate(("z", "a", "m")):
            save(storage, tmp_path, name, step)
        storage.remove(storage.hide("a"))
        save(storage, tmp_path, "b", 3)
        for one in (storage, pickle.loads(pickle.dumps(storage))):
            assert [(each.name, each.metrics["step"]) for each in one.committed()] == [
                ("z", 0), ("m", 2), ("b", 3)
            ]  # fmt: skip
        assert not {"a"}.intersection(names(storage))

    def test_what_is_unfinished_is_invisible_and_swept(
        self, storage: RunStorage, tmp_path: pathlib.Path
    ) -> None:
        storage.open()
        save(storage, tmp_path, "whole", 1)
        storage.upload(folder_of(tmp_path / "x", a="1"), "part", 0, never)
        own, run = storage._place()
        own.write(f"{run}/notes/of the user.txt", b"stay", f"{run}/draft")
        later = pickle.loads(pickle.dumps(storage))
        assert [one.name for one in later.committed()] == ["whole"]
        assert "part" in names(later)
        later.open()
        assert {"whole", "notes"} <= set(names(later))
        assert "part" not in names(later)
        assert own.read(f"{run}/notes/of the user.txt") == b"stay"
        assert own.names(f"{run}/.unfinished") == []

    def test_a_deletion_that_was_cut_off_is_finished(
        self, storage: RunStorage, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage.open()
        for name in ("a", "b"):
            save(storage, tmp_path, name, 1)
        own, _ = storage._place()
        with monkeypatch.context() as patch:
            patch.setattr(own, "remove", raising(PermissionError(13, "no")))
            storage.remove(storage.hide("a"))
        assert [one.name for one in storage.committed()] == ["b"]
        later = pickle.loads(pickle.dumps(storage))
        later.open()
        assert [one.name for one in later.committed()] == ["b"]
        assert "a" not in names(later)

    def test_state_and_records(self, storage: RunStorage) -> None:
        storage.open()
        assert storage.read_state() == b""
        for state in (b"1", b"22"):
            storage.write_state(state)
        storage.append_lines("metrics.jsonl", "1\n")
        later = pickle.loads(pickle.dumps(storage))
        later.append_lines("metrics.jsonl", "2\n")
        later.append_lines("metrics.jsonl", "3\n")
        assert later.read_state() == b"22"
        assert later.read("metrics.jsonl") == b"1\n2\n3\n"

    def test_metadata(self, storage: RunStorage, tmp_path: pathlib.Path) -> None:
        storage.open()
        checkpoint = save(storage, tmp_path, "a", 1)
        assert checkpoint.get_metadata() == {}
        checkpoint.set_metadata({"a": 1, "b": [2]})
        checkpoint.update_metadata({"a": 3})
        assert storage.committed()[0].checkpoint.get_metadata() == {"a": 3, "b": [2]}

    def test_a_damaged_file_is_named(self, storage: RunStorage, tmp_path: pathlib.Path) -> None:
        storage.open()
        checkpoint = save(storage, tmp_path, "a", 17)
        own, run = storage._place()
        own.write(f"{run}/a/state", b"18", f"{run}/draft")
        with pytest.raises(StorageError, match=r"damaged: state has other content"):
            checkpoint.to_directory(tmp_path / "copy")
        own.remove(f"{run}/a/state")
        with pytest.raises(StorageError, match=r"damaged: state is missing"):
            checkpoint.to_directory(tmp_path / "copy")

    def test_files_that_are_elsewhere_are_taken_as_they_are(
        self, storage: RunStorage, tmp_path: pathlib.Path
    ) -> None:
        storage.open()
        path = storage.build_checkpoint_path_from_name("mine")
        own, _ = storage._place()
        own.write(f"{path}/model", b"m", f"{path}/draft")
        there = Checkpoint(path, storage.storage_filesystem)
        local = folder_of(tmp_path / "elsewhere", model="n")
        for name, checkpoint, expected in (("a", there, b"m"), ("b", local, b"n")):
            storage.commit(name, [storage.adopt(checkpoint, name, 0)], {})
            assert content(storage.committed()[-1].checkpoint)["model"] == expected
        later = pickle.loads(pickle.dumps(storage))
        later.open()
        assert [content(one.checkpoint)["model"] for one in later.committed()] == [b"m", b"n"]
        later.remove(later.hide("b"))
        assert not (tmp_path / "elsewhere").exists()


def raising(error: Exception) -> Any:
    def call(*arguments: Any, **named: Any) -> Any:
        raise error

    return call


@pytest.fixture
def local(tmp_path: pathlib.Path) -> RunStorage:
    storage = RunStorage(str(tmp_path / "runs"), "run")
    storage.open()
    return storage


class TestNames:
    def test_a_name_is_used_once(self, local: RunStorage, tmp_path: pathlib.Path) -> None:
        checkpoint = save(local, tmp_path, "best", 1)
        with pytest.raises(StorageError, match=r"a checkpoint of this name.*checkpoint_dir_name"):
            save(local, tmp_path, "best", 2)
        assert content(checkpoint) == {"state": b"1"}

    @pytest.mark.parametrize("name", ["", "a/b", "..", ".unfinished"])
    def test_names_are_those_of_folders(self, local: RunStorage, tmp_path: pathlib.Path, name: str) -> None:
        with pytest.raises(StorageError, match="no name of a folder"):
            local.upload(folder_of(tmp_path / "a"), name, 0, never)

    def test_the_name_of_the_manifest_is_taken(self, local: RunStorage, tmp_path: pathlib.Path) -> None:
        checkpoint = folder_of(tmp_path / "a")
        (tmp_path / "a/manifest.json").write_text('{"name": "an app"}')
        with pytest.raises(StorageError, match=r"has a file manifest\.json\. The name is taken"):
            local.upload(checkpoint, "a", 0, never)

    def test_a_committed_checkpoint_is_reported_again(
        self, local: RunStorage, tmp_path: pathlib.Path
    ) -> None:
        first = save(local, tmp_path, "a", 1)
        part = local.upload(first, "b", 0, never)
        assert list(part.files) == ["state"]
        assert content(local.commit("b", [part], {})) == content(first)

    def test_different_files_of_one_name_are_reported(
        self, local: RunStorage, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        parts = [local.upload(folder_of(tmp_path / name, model=name), "c", rank, never) for rank, name in
                 enumerate(("a", "longer"))]  # fmt: skip
        with caplog.at_level(logging.WARNING):
            checkpoint = local.commit("c", parts, {})
        assert "ranks 0, 1 wrote different files model" in caplog.text
        assert content(checkpoint) == {"model": b"longer"}
        assert len(RunStorage(local.path, "run").committed()) == 1


class TestLocal:
    def test_a_manifest_lists_the_files(self, local: RunStorage, tmp_path: pathlib.Path) -> None:
        checkpoint = save(local, tmp_path, "a", 1)
        read = manifest.decode(pathlib.Path(checkpoint.path, "manifest.json").read_bytes())
        assert read.files == {"state": FileRecord(1, zlib.crc32(b"1"))}
        assert (read.metrics, read.ranks, read.number) == ({"step": 1}, [0], 1)

    def test_damaged_checkpoints_are_left_out(
        self, local: RunStorage, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        cut, listed, whole = (pathlib.Path(save(local, tmp_path, name, 1).path) for name in "abc")
        (cut / "state").write_bytes(b"")
        (listed / "manifest.json").write_bytes(b"{")
        later = RunStorage(local.path, "run")
        assert [one.checkpoint.path for one in later.committed()] == [str(whole)]
        assert "state has 0 bytes, not 1" in caplog.text
        assert "its manifest is invalid" in caplog.text

    def test_links_are_followed(self, local: RunStorage, tmp_path: pathlib.Path) -> None:
        checkpoint = folder_of(tmp_path / "a", real__x="1")
        (tmp_path / "a/file").symlink_to(tmp_path / "a/real/x")
        (tmp_path / "a/folder").symlink_to(tmp_path / "a/real")
        (tmp_path / "a/real/loop").symlink_to(tmp_path / "a")
        os.mkfifo(tmp_path / "a/fifo")
        assert sorted(local.upload(checkpoint, "a", 0, never).files) == ["file", "folder/x", "real/x"]

    def test_metrics_keep_their_types(self, local: RunStorage, tmp_path: pathlib.Path) -> None:
        metrics = {"pair": (1, 2), "by": {1: 2j}}
        local.commit("a", [local.upload(folder_of(tmp_path / "a"), "a", 0, never)], metrics)
        assert RunStorage(local.path, "run").committed()[0].metrics == metrics

    def test_an_upload_is_given_up(self, local: RunStorage, tmp_path: pathlib.Path) -> None:
        calls = iter([False] * 3)
        with pytest.raises(Cancelled):
            local.upload(folder_of(tmp_path / "a", x=BIG), "a", 0, lambda: next(calls, True))
        local.open()
        assert "a" not in names(local)

    def test_a_folder_that_is_gone_says_how_to_keep_it(
        self, local: RunStorage, tmp_path: pathlib.Path
    ) -> None:
        with pytest.raises(StorageError, match=r"rank 3 to .*run/a: .*/gone does not exist.*mkdtemp"):
            local.upload(Checkpoint.from_directory(tmp_path / "gone"), "a", 3, never)

    def test_parts_with_paths_that_lead_out(self, local: RunStorage) -> None:
        with pytest.raises(ValueError, match="no path within"):
            local.commit("a", [PartManifest(0, {"../x": FileRecord(1)})], {})
