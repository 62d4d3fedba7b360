"""Rotation of a worker's output: nothing is lost on the way, whoever still writes to which file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime._node.log_file import NAME_MARK, PARTIAL_READS, Rotation, Stream


class Writer:
    """A worker's stream: appends through one descriptor, which it opens again when it is told to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._open()

    def write(self, text: str) -> None:
        os.write(self._file, text.encode())

    def reopen(self) -> None:
        self.close()
        self._file = self._open()

    def close(self) -> None:
        os.close(self._file)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def lines_of(stream: Stream) -> list[tuple[str, str]]:
    """(name, line) of all that is new."""
    found = []
    is_behind = True
    while is_behind:
        is_behind, groups = stream.read()
        found += [(name, line) for name, lines in groups for line in lines]
    return found


def stream_of(path: Path, max_bytes: int = 10, backups: int = 2) -> Stream:
    return Stream(str(path), b"job", 1, False, Rotation(max_bytes, backups))


def test_a_large_file_is_renamed_and_the_worker_asked_to_open_another(tmp_path: Path) -> None:
    path = tmp_path / "x.out"
    writer, stream = Writer(path), stream_of(path)
    found = []
    for number in range(20):
        writer.write(f"line {number:02}\n")
        found += lines_of(stream)
        if stream.wants_reopening:
            writer.reopen()
    assert found == [("", f"line {number:02}") for number in range(20)]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.out", "x.out.1", "x.out.2"]
    assert all(file.stat().st_size <= 20 for file in tmp_path.iterdir())
    writer.close()


def test_what_is_written_before_the_worker_opens_another_file_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "x.out"
    writer, stream = Writer(path), stream_of(path)
    child = Writer(path)
    writer.write("\x01name:f\none line\nhal")
    assert lines_of(stream) == [("f", "one line")]
    assert stream.wants_reopening
    writer.write("f\nha")
    assert lines_of(stream) == [("f", "half")]
    assert stream.wants_reopening, "it did not do so yet"
    writer.reopen()
    writer.write("lf\nthird\n")
    assert lines_of(stream) == [("f", "half"), ("f", "third")]
    assert not stream.wants_reopening
    child.write("of a program that it started\n")
    assert lines_of(stream) == [("f", "of a program that it started")]
    writer.write("fourth")
    assert stream.read_end() == [("f", ["fourth"])]
    writer.close()
    child.close()


def test_output_that_goes_unread_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.out"
    writer, stream = Writer(path), stream_of(path, backups=1)
    writer.write("first line\n")
    lines_of(stream)
    child = Writer(path.with_name("x.out.1"))
    writer.reopen()
    writer.write("second line\n")
    child.write("x" * 300_000 + "\n")
    stream.files[0].offset += 1  # one round reads 256 KiB of the older file
    _, groups = stream.read()
    assert "are lost" in groups[-1][1][0]
    writer.close()
    child.close()


@pytest.mark.parametrize(("max_bytes", "backups"), [(0, 5), (10, 0)])
def test_rotation_can_be_switched_off(tmp_path: Path, max_bytes: int, backups: int) -> None:
    path = tmp_path / "x.out"
    path.write_text("a line that is long enough\n" * 10)
    stream = stream_of(path, max_bytes, backups)
    assert len(lines_of(stream)) == 10
    assert list(tmp_path.iterdir()) == [path]


def test_the_environment_says_how_to_rotate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Rotation.of_environment() == Rotation(512 << 20, 5)
    monkeypatch.setenv("RAY_ROTATION_MAX_BYTES", "1024")
    monkeypatch.setenv("RAY_ROTATION_BACKUP_COUNT", "1")
    assert Rotation.of_environment() == Rotation(1024, 1)
    monkeypatch.setenv("RAY_ROTATION_MAX_BYTES", "much")
    assert Rotation.of_environment() == Rotation(512 << 20, 1)


def settled(stream: Stream) -> list[tuple[str, str]]:
    """What is read until nothing has followed for a moment."""
    return [line for _ in range(PARTIAL_READS + 1) for line in lines_of(stream)]


def test_an_unfinished_line_is_handed_on_when_nothing_follows(tmp_path: Path) -> None:
    path = tmp_path / "x.out"
    writer, stream = Writer(path), stream_of(path, max_bytes=0)
    writer.write(f"{NAME_MARK}f\nwhole\npart")
    assert lines_of(stream) == [("f", "whole")]
    assert settled(stream) == [("f", "part")]
    assert settled(stream) == []
    writer.write("ial\nnext\n")
    assert settled(stream) == [("f", "ial"), ("f", "next")]
    writer.close()


def test_the_mere_end_of_a_line_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "x.out"
    writer, stream = Writer(path), stream_of(path, max_bytes=0)
    writer.write("working... ")
    assert settled(stream) == [("", "working... ")]
    writer.write("\n\ndone\n")
    assert settled(stream) == [("", ""), ("", "done")]
    writer.close()


def test_news_restart_the_wait_for_the_rest_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "x.out"
    writer, stream = Writer(path), stream_of(path, max_bytes=0)
    for character in "abc":
        writer.write(character)
        assert [line for _ in range(PARTIAL_READS - 1) for line in lines_of(stream)] == []
    assert settled(stream) == [("", "abc")]
    writer.close()


@pytest.mark.parametrize("cut", [NAME_MARK[:3], f"{NAME_MARK}work", "caf\u00e9"])
def test_neither_names_nor_characters_are_cut(tmp_path: Path, cut: str) -> None:
    path = tmp_path / "x.out"
    stream = stream_of(path, max_bytes=0)
    path.write_bytes(cut.encode()[:-1] if cut.endswith("\u00e9") else cut.encode())
    assert settled(stream) == []


def test_invalid_bytes_in_the_middle_do_not_hold_a_line_back(tmp_path: Path) -> None:
    path = tmp_path / "x.out"
    stream = stream_of(path, max_bytes=0)
    path.write_bytes(b"a\xffb")
    assert settled(stream) == [("", "a\ufffdb")]
