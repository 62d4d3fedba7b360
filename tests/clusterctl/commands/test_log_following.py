"""Following log files by byte offsets."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from clusterctl.commands.log_following import Joiner, chunks, command
from clusterctl.shell.local import LocalShell

Poll = Callable[[], list[str]]


@pytest.fixture
def logs(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


@pytest.fixture
def poll(tmp_path: pathlib.Path, logs: pathlib.Path) -> Poll:
    """Asks once more, as a follower does, and returns the new lines."""
    shell = LocalShell(str(tmp_path), {"CLUSTERCTL_SESSION_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"})
    offsets: dict[str, int] = {}
    joiner = Joiner()

    def ask() -> list[str]:
        script, env = command("*.log", offsets, last_lines=2)
        out = []
        for chunk in chunks(shell.run(script, env=env).output):
            offsets[chunk.name] = chunk.next_offset
            out += joiner.lines(chunk)
        return out

    return ask


def add(file: pathlib.Path, text: str) -> None:
    with file.open("a", encoding="utf-8") as stream:
        stream.write(text)


def test_it_begins_with_the_last_lines_and_goes_on_with_what_is_new(logs: pathlib.Path, poll: Poll) -> None:
    add(logs / "a.log", "1\n2\n3\n")
    assert poll() == ["==> a.log <==", "2", "3"]
    assert poll() == []
    add(logs / "a.log", "4\n\n  5 @ x\n@6\n")
    assert poll() == ["4", "", "  5 @ x", "@6"]


def test_an_unfinished_line_waits_for_its_end(logs: pathlib.Path, poll: Poll) -> None:
    add(logs / "a.log", "begun ")
    assert poll() == []
    add(logs / "a.log", "änd ended\nnext")
    assert poll() == ["==> a.log <==", "begun änd ended"]
    add(logs / "a.log", "\n")
    assert poll() == ["next"]


def test_several_files_are_told_apart_and_new_ones_noticed(logs: pathlib.Path, poll: Poll) -> None:
    add(logs / "a.log", "a1\n")
    assert poll() == ["==> a.log <==", "a1"]
    add(logs / "b.log", "b1\n")
    add(logs / "a.log", "a2\n")
    assert poll() == ["a2", "", "==> b.log <==", "b1"]


def test_a_file_that_begins_anew_is_shown_from_its_start(logs: pathlib.Path, poll: Poll) -> None:
    add(logs / "a.log", "a long line\n")
    poll()
    (logs / "a.log").write_text("new\n")
    assert poll() == ["new"]
