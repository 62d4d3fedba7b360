"""Files that are replaced: whole or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from runtime._system import files
from tests.killed_writers import killed_after_each_line


def test_a_file_is_replaced_for_this_user_only(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"before")
    path.chmod(0o644)
    files.replace(str(path), b"after")
    assert path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [*tmp_path.iterdir()] == [path]


def test_a_killed_writer_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"before")
    deaths = 0
    for _ in killed_after_each_line(lambda: files.replace(str(path), b"after"), {str(files.__file__)}):
        deaths += 1
        assert path.read_bytes() in (b"before", b"after")
        path.write_bytes(b"before")
    assert deaths >= 6
    assert path.read_bytes() == b"after"


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "f" / "full").mkdir(parents=True)
    with pytest.raises(OSError):
        files.replace(str(tmp_path / "f"), b"after")
    assert [file.name for file in tmp_path.iterdir()] == ["f"]
