"""One suite for every storage back end."""

from __future__ import annotations

import os
import pathlib
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from runtime._control.storage import Storage, StorageError, open_storage
from runtime._control.storage.sqlite import SqliteStorage


@pytest.fixture(params=["memory", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Storage]:
    location = ":memory:" if request.param == "memory" else str(tmp_path / "state.sqlite")
    opened = open_storage(location)
    yield opened
    opened.close()


class TestContract:
    def test_what_is_put_is_there_before_the_commit(self, storage: Storage) -> None:
        assert storage.get("t", b"k") is None
        storage.put("t", b"k", b"v")
        assert storage.get("t", b"k") == b"v"
        storage.commit()
        assert storage.get("t", b"k") == b"v"

    def test_put_replaces(self, storage: Storage) -> None:
        storage.put("t", b"k", b"1")
        storage.put("t", b"k", b"2")
        assert storage.get("t", b"k") == b"2"

    def test_tables_are_apart(self, storage: Storage) -> None:
        storage.put("t", b"k", b"1")
        storage.put("u", b"k", b"2")
        assert storage.get("t", b"k") == b"1"
        assert storage.scan("u") == [(b"k", b"2")]
        assert storage.scan("v") == []

    def test_delete(self, storage: Storage) -> None:
        storage.put("t", b"k", b"1")
        assert storage.delete("t", b"k")
        assert not storage.delete("t", b"k")
        assert storage.get("t", b"k") is None

    def test_scan_is_in_order(self, storage: Storage) -> None:
        for key in (b"b", b"", b"\xff", b"a\x00", b"a"):
            storage.put("t", key, b"v" + key)
        keys = [b"", b"a", b"a\x00", b"b", b"\xff"]
        assert storage.scan("t") == [(key, b"v" + key) for key in keys]
        assert storage.keys("t") == keys

    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            (b"a", [b"a", b"a\x00", b"ab"]),
            (b"a\x00", [b"a\x00"]),
            (b"\xff", [b"\xff", b"\xff\xff", b"\xffz"]),
            (b"\xff\xff", [b"\xff\xff"]),
            (b"a\xff", []),
            (b"nothing", []),
        ],
    )
    def test_prefixes(self, storage: Storage, prefix: bytes, expected: list[bytes]) -> None:
        for key in (b"a", b"a\x00", b"ab", b"b", b"\xff", b"\xff\xff", b"\xffz", b"\xfe"):
            storage.put("t", key, b"")
        assert sorted(storage.keys("t", prefix)) == sorted(expected)
        assert [key for key, _ in storage.scan("t", prefix)] == storage.keys("t", prefix)

    def test_large_values(self, storage: Storage) -> None:
        value = os.urandom(3_000_000)
        storage.put("t", b"k", value)
        storage.commit()
        assert storage.get("t", b"k") == value

    def test_commit_without_writes(self, storage: Storage) -> None:
        storage.commit()
        assert not storage.dirty

    def test_close_twice(self, storage: Storage) -> None:
        storage.close()
        storage.close()


class TestSqlite:
    def path(self, tmp_path: pathlib.Path) -> str:
        return str(tmp_path / "deep" / "state.sqlite")

    def test_state_outlives_the_object(self, tmp_path: pathlib.Path) -> None:
        first = SqliteStorage(self.path(tmp_path))
        first.put("t", b"k", b"v")
        first.close()
        second = SqliteStorage(self.path(tmp_path))
        assert second.get("t", b"k") == b"v"
        second.close()

    def test_only_the_owner_may_read_the_file(self, tmp_path: pathlib.Path) -> None:
        SqliteStorage(self.path(tmp_path)).close()
        assert stat.S_IMODE(os.stat(self.path(tmp_path)).st_mode) == 0o600

    def test_a_second_user_is_refused(self, tmp_path: pathlib.Path) -> None:
        first = SqliteStorage(self.path(tmp_path))
        first.put("t", b"k", b"v")
        first.commit()
        code = "import sys; from runtime._control.storage.sqlite import SqliteStorage as S; S(sys.argv[1])"
        other = subprocess.run(
            [sys.executable, "-c", code, self.path(tmp_path)], capture_output=True, text=True, timeout=30
        )
        first.close()
        assert other.returncode != 0
        assert "in use by another control store" in other.stderr

    def test_a_file_of_another_kind_is_refused(self, tmp_path: pathlib.Path) -> None:
        (tmp_path / "x").write_bytes(b"not a database" * 100)
        with pytest.raises(StorageError, match="cannot open the state file"):
            SqliteStorage(str(tmp_path / "x"))

    def test_a_directory_is_refused(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(StorageError, match="cannot open"):
            SqliteStorage(str(tmp_path))

    def test_state_of_a_newer_program_is_refused(self, tmp_path: pathlib.Path) -> None:
        path = str(tmp_path / "x")
        database = sqlite3.connect(path)
        database.execute("PRAGMA user_version=99")
        database.close()
        with pytest.raises(StorageError, match="version 99"):
            SqliteStorage(path)

    @pytest.mark.parametrize("is_committed", [True, False])
    def test_killed_process(self, tmp_path: pathlib.Path, is_committed: bool) -> None:
        """What was committed is there after SIGKILL, and nothing of what was not."""
        code = (
            "import os, signal, sys\n"
            "from runtime._control.storage.sqlite import SqliteStorage\n"
            "s = SqliteStorage(sys.argv[1])\n"
            "for i in range(50): s.put('t', b'%d' % i, b'v' * 1000)\n"
            "if sys.argv[2] == 'True': s.commit()\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        path = self.path(tmp_path)
        subprocess.run([sys.executable, "-c", code, path, str(is_committed)], timeout=30, check=False)
        storage = SqliteStorage(path)
        assert len(storage.keys("t")) == (50 if is_committed else 0)
        storage.close()


def test_the_protocol_is_what_the_back_ends_are(tmp_path: pathlib.Path) -> None:
    make: list[Callable[[], Storage]] = [
        lambda: open_storage(":memory:"),
        lambda: open_storage(str(tmp_path / "s")),
    ]
    for open_it in make:
        open_it().close()
