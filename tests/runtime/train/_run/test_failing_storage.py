"""Storages that fail, are full, forbidden or hang; and processes that are killed while they upload."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pathlib
import pickle
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from runtime.train import Checkpoint, StorageError
from runtime.train._run import calls, files
from runtime.train._run.calls import Cancelled, Watch, translated, watched
from runtime.train._run.storage import RunStorage
from tests.polling import eventually
from tests.runtime.train._run.conftest import Flaky, content, folder_of, never, small_disk


class TestOneWriteInTen:
    def test_checkpoints_are_complete(self, tmp_path: pathlib.Path, memory: str) -> None:
        flaky = Flaky(every=10)
        storage = RunStorage(f"{memory}/runs", "run", flaky)
        storage.open()
        big = os.urandom(files.SMALL_BYTES + 1)
        written = {}
        for step in range(10):
            name = f"checkpoint_{step}"
            checkpoint = folder_of(tmp_path / name, a=str(step), b=big, c__d="x")
            storage.commit(name, [storage.upload(checkpoint, name, 0, never)], {"step": step})
            written[name] = content(checkpoint)
            storage.write_state(name.encode())
        assert flaky.failed > 5
        later = RunStorage(f"{memory}/runs", "run", MemoryFileSystem())
        assert {one.name: content(one.checkpoint) for one in later.committed()} == written
        assert later.read_state() == b"checkpoint_9"

    def test_one_that_always_fails_is_an_error_that_says_how_often_it_was_tried(
        self, tmp_path: pathlib.Path, memory: str
    ) -> None:
        flaky = Flaky(every=1)
        storage = RunStorage(f"{memory}/runs", "run", flaky)
        with pytest.raises(StorageError, match=r"storage_path /.*hung up.*tried 8 times"):
            storage.open()
        assert flaky.failed == calls.ATTEMPTS

    def test_what_no_retry_removes_is_not_tried_again(self, memory: str) -> None:
        flaky = Flaky(every=1, error=PermissionError(errno.EACCES, "Forbidden"))
        with pytest.raises(StorageError, match=r"Forbidden\. Check the permissions"):
            RunStorage(f"{memory}/runs", "run", flaky).open()
        assert flaky.failed == 1


class TestLocalDisk:
    def test_a_file_larger_than_is_allowed(self, tmp_path: pathlib.Path) -> None:
        storage = RunStorage(str(tmp_path / "runs"), "run")
        storage.open()
        checkpoint = folder_of(tmp_path / "a", model=b"x" * 200_000)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            with pytest.raises(StorageError, match=r"rank 2 to .*run/a: File too large.*ulimit -f"):
                storage.upload(checkpoint, "a", 2, never)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert [entry.name for entry in (tmp_path / "runs/run/.unfinished").iterdir()] == ["a@2"]
        storage.open()
        assert not (tmp_path / "runs/run/a").exists()

    def test_a_full_disk(self, tmp_path: pathlib.Path) -> None:
        with small_disk(tmp_path / "disk") as disk:
            storage = RunStorage(str(disk), "run")
            storage.open()
            kept = folder_of(tmp_path / "a", model=b"x" * 300_000)
            storage.commit("a", [storage.upload(kept, "a", 0, never)], {})
            checkpoint = folder_of(tmp_path / "b", model=b"x" * 900_000)
            with pytest.raises(StorageError, match=r"No space left on device\. Free space.*num_to_keep"):
                storage.upload(checkpoint, "b", 0, never)
            later = RunStorage(str(disk), "run")
            later.open()
            assert [content(one.checkpoint) for one in later.committed()] == [content(kept)]
            assert not (disk / "run/b").exists()

    def test_no_permission(self, tmp_path: pathlib.Path) -> None:
        (tmp_path / "runs").mkdir(mode=0o500)
        tmp_path.chmod(0o755)
        with as_nobody(), pytest.raises(StorageError, match=r"Permission denied.*Check the permissions"):
            RunStorage(str(tmp_path / "runs"), "run").open()

    def test_a_file_in_the_way(self, tmp_path: pathlib.Path) -> None:
        (tmp_path / "runs").write_text("")
        with pytest.raises(StorageError, match=r"/runs/run.*choose another storage_path"):
            RunStorage(str(tmp_path / "runs"), "run").open()

    def test_a_node_without_the_folder(self, tmp_path: pathlib.Path) -> None:
        storage = RunStorage(str(tmp_path / "runs"), "run")
        with pytest.raises(StorageError, match=r"this node has not got the run's folder.* all of them share"):
            storage.upload(folder_of(tmp_path / "a"), "a", 0, never)

    def test_a_library_that_is_not_there(self) -> None:
        with pytest.raises(StorageError, match=r"Protocol not known: nonsense|Check that"):
            RunStorage("nonsense://runs", "run").open()
        with pytest.raises(StorageError, match=r"must be one of fsspec or pyarrow\.fs, not int"):
            RunStorage("runs", "run", 3).open()


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    own = os.geteuid()
    if own == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(own)


class TestDeadline:
    def test_a_storage_that_hangs(
        self, tmp_path: pathlib.Path, memory: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RAY_TRAIN_STORAGE_TIMEOUT_S", "0.2")
        end = threading.Event()
        filesystem = Flaky(every=1 << 30)
        monkeypatch.setattr(filesystem, "pipe_file", lambda *_, **__: end.wait(60))
        storage = RunStorage(f"{memory}/runs", "run", filesystem)
        with pytest.raises(StorageError, match=r"has not answered for 0.2 s.*RAY_TRAIN_STORAGE_TIMEOUT_S"):
            storage.upload(folder_of(tmp_path / "a", x="1"), "a", 0, never)
        calls_left = iter([False] * 2)
        with pytest.raises(Cancelled):
            storage.upload(folder_of(tmp_path / "a", x="1"), "b", 0, lambda: next(calls_left, True))
        end.set()

    def test_progress_counts(self) -> None:
        def work(watch: Watch) -> int:
            for _ in range(10):
                threading.Event().wait(0.05)
                watch.beat()
            return 5

        assert watched("do", "it", work, 0.3) == 5


class TestErrors:
    @pytest.mark.parametrize("number", sorted(calls._ADVICE))
    def test_say_what_to_do(self, number: int) -> None:
        error = translated("write", "/a", OSError(number, os.strerror(number), "/a/b"))
        assert str(error).startswith("Cannot write /a: ")
        assert os.strerror(number) in str(error)
        assert calls._ADVICE[number] in str(error)
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.path, again.reason) == (str(error), "/a", error.reason)

    @pytest.mark.parametrize(
        ("error", "is_permanent"),
        [
            (FileNotFoundError("x"), True),
            (ImportError("x"), True),
            (OSError(errno.EIO, "x"), False),
            (OSError(errno.ESTALE, "x"), False),
            (TimeoutError("x"), False),
            (ConnectionError("x"), False),
            (RuntimeError("of a library"), False),
        ],
    )
    def test_that_may_go_away_are_tried_again(self, error: Exception, is_permanent: bool) -> None:
        assert calls.is_permanent(error) is is_permanent
        assert ("tried 8 times" in str(translated("read", "/a", error))) is not is_permanent


UPLOADER = """
import sys
from runtime.train import Checkpoint
from runtime.train._run import files
from runtime.train._run.storage import RunStorage
copy = files.copy
def slow(source, path, target, new_path, size_bytes, draft, beat, **options):
    def stop():
        print("half", flush=True)
        sys.stdin.read()
    beat = stop if path.endswith("z") else beat
    return copy(source, path, target, new_path, size_bytes, draft, beat, **options)
files.copy = slow
storage = RunStorage(sys.argv[1], "run")
storage.open()
storage.upload(Checkpoint.from_directory(sys.argv[2]), "c", 0, lambda: False)
"""


def test_a_process_that_is_killed_while_it_uploads_leaves_nothing(tmp_path: pathlib.Path) -> None:
    folder_of(tmp_path / "own", a="1", z=b"x" * (3 * files.BLOCK_BYTES))
    runs = tmp_path / "runs"
    with subprocess.Popen(
        [sys.executable, "-c", UPLOADER, runs, tmp_path / "own"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=pathlib.Path(__file__).parents[4],
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        assert eventually((runs / "run/c/a").exists)
        assert not (runs / "run/c/z").exists()
        process.send_signal(signal.SIGKILL)
    storage = RunStorage(str(runs), "run")
    assert storage.committed() == []
    storage.open()
    assert sorted(path.name for path in (runs / "run").rglob("*")) == [".unfinished"]


def test_a_real_server(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    server_module = pytest.importorskip("moto.server")
    pafs = pytest.importorskip("pyarrow.fs")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        query = f"scheme=http&endpoint_override={host}%3A{port}&region=us-east-1&allow_bucket_creation=true"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            patch.setenv("AWS_ACCESS_KEY_ID", "a")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "b")
            uri = f"s3://runs/some folder?{query}"
            bucket, _ = pafs.FileSystem.from_uri(f"s3://runs?{query}")
            bucket.create_dir("runs")
            storage = RunStorage(uri, "run")
            with caplog.at_level(logging.INFO, "werkzeug"):
                exercise(storage, tmp_path)
            assert "PUT /runs/some%20folder/run/a/manifest.json HTTP" in caplog.text  # in one request
    finally:
        server.stop()
        files.arrow_of.cache_clear()  # with its connections


def exercise(storage: RunStorage, tmp_path: pathlib.Path) -> None:
    storage.open()
    big = os.urandom(files.SMALL_BYTES + 1)
    for step, name in enumerate("ab"):
        checkpoint = folder_of(tmp_path / name, model=big, inner__x=name)
        storage.commit(name, [storage.upload(checkpoint, name, 0, never)], {"step": step})
    storage.upload(folder_of(tmp_path / "c"), "c", 0, never)
    storage.remove(storage.hide("a"))
    later = pickle.loads(pickle.dumps(storage))
    later.open()
    [one] = later.committed()
    assert (one.name, one.metrics) == ("b", {"step": 1})
    assert content(one.checkpoint) == {"model": big, "inner/x": b"b"}
    one.checkpoint.set_metadata({"a": 1})
    assert Checkpoint(one.checkpoint.path, one.checkpoint.filesystem).get_metadata() == {"a": 1}


def test_nothing_is_left_of_waiting() -> None:
    assert eventually(lambda: not [one for one in threading.enumerate() if one.name == "storage"])
