"""Lines of worker output: whose they are, what is cut, what is read at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime._core.workers import Worker
from runtime._node import log_monitor
from runtime._node.log_file import MAX_LINE_CHARS, MAX_LINES, LogFile
from runtime._node.log_monitor import LogMonitor


def followed(path: Path) -> LogFile:
    return LogFile(str(path))


def test_whole_lines_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\nthr")
    file = followed(path)
    assert file.read() == (False, [("", ["one", "two"])])
    with path.open("a") as more:
        more.write("ee\n")
    assert file.read() == (False, [("", ["three"])])


def test_an_unfinished_line_is_read_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntw")
    assert followed(path).read_end() == [("", ["one", "tw"])]


def test_a_name_holds_for_the_lines_that_follow(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a\n\x01name:f\nb\nc\n\x01name:g\nd\n")
    assert followed(path).read_end() == [("", ["a"]), ("f", ["b", "c"]), ("g", ["d"])]


def test_a_name_outlives_a_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("\x01name:f\n")
    file = followed(path)
    file.read()
    with path.open("a") as more:
        more.write("b\n")
    assert file.read()[1] == [("f", ["b"])]


def test_batches_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x\n" * (MAX_LINES + 1))
    assert [len(lines) for _, lines in followed(path).read_end()] == [MAX_LINES, 1]


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * (3 * MAX_LINE_CHARS))
    lines = [line for _, group in followed(path).read_end() for line in group]
    assert all(len(line) <= MAX_LINE_CHARS for line in lines)


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff\xfe\n")
    assert followed(path).read_end() == [("", ["��"])]


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert followed(tmp_path / "none").read_end() == []


@pytest.mark.parametrize("can_watch", [True, False], ids=["watched", "looked at now and then"])
def test_a_line_after_a_long_silence_is_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_watch: bool
) -> None:
    monkeypatch.setattr(log_monitor, "_QUICK_S", 0.001)
    monkeypatch.setattr(log_monitor, "_SLOW_S", 0.001)
    if not can_watch:
        monkeypatch.setattr(log_monitor.FileWatch, "_open", lambda _: False)
    out, err = tmp_path / "out", tmp_path / "err"

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30.0):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def scenario() -> None:
        lines: list[str] = []
        monitor = LogMonitor(b"node", "host", lambda batch: lines.extend(batch.lines))
        monitor.follow(Worker(b"worker", 1, (b"job1", "")), str(out), str(err))
        out.write_text("one\n")
        err.touch()
        await until(lambda: lines == ["one"])
        if can_watch:
            await until(lambda: monitor._timer is None and monitor._round is None)  # nobody looks any more
        with out.open("a") as file:
            file.write("two\n")
        await until(lambda: lines == ["one", "two"])
        await monitor.close()

    asyncio.run(scenario())
