"""Lines of workers are printed on a thread of their own: whoever brings them never waits."""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Iterator
from typing import TextIO

import pytest

from runtime._process import printing
from runtime._process.driver_logs import LogPrinter
from runtime._process.printing import Printing, Room
from runtime._wire.messages.node import DriverLogs

HOST = "10.0.0.1"
LIMIT_S = 30.0


class Pipe:
    """A real pipe with a program's buffered text stream at its end."""

    def __init__(self) -> None:
        self.read_fd, write_fd = os.pipe()
        self.out: TextIO = open(write_fd, "w")  # noqa: SIM115

    def fill(self) -> None:
        """Leaves room for nothing."""
        os.set_blocking(self.out.fileno(), False)
        try:
            while True:
                os.write(self.out.fileno(), b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(self.out.fileno(), True)

    def unread(self) -> str:
        """What the pipe holds."""
        os.set_blocking(self.read_fd, False)
        try:
            return os.read(self.read_fd, 1 << 20).decode()
        except BlockingIOError:
            return ""

    def read_all(self) -> str:
        """What was written; the writing end is closed."""
        self.out.close()
        with open(self.read_fd) as reader:
            return reader.read()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    if not pipe.out.closed:
        pipe.read_all()


def batch(*lines: str) -> DriverLogs:
    return DriverLogs(HOST, 1, "f", False, list(lines))


def of(out: TextIO, err: TextIO | None = None) -> Printing:
    room = Room()
    return Printing(LogPrinter(HOST, out, err or io.StringIO(), room.wait), room)


def test_everything_is_printed_in_order() -> None:
    out = io.StringIO()
    lines = of(out)
    for number in range(1000):
        lines.put(batch(f"line {number}"))
    lines.close()
    assert out.getvalue() == "".join(f"(f pid=1) line {number}\n" for number in range(1000))


def test_a_full_pipe_holds_up_nobody_and_is_filled_when_it_is_read(pipe: Pipe) -> None:
    pipe.fill()
    lines = of(pipe.out)
    for number in range(1000):
        lines.put(batch(f"line {number}"))  # returns at once, or the test does not end
    closing = threading.Thread(target=lines.close)
    closing.start()
    read = b""
    while b"line 999" not in read:
        read += os.read(pipe.read_fd, 1 << 16)
    closing.join(LIMIT_S)
    assert not closing.is_alive()
    assert read.count(b"line ") == 1000


def test_a_stream_that_nobody_reads_is_given_up_and_its_lock_is_free(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printing, "PATIENCE_S", 0.1)
    pipe.fill()
    err = io.StringIO()
    lines = of(pipe.out, err)
    lines.put(batch("never seen"))
    lines.close()
    assert "Lines of workers are missing" in err.getvalue()
    os.read(pipe.read_fd, 1 << 16)
    pipe.out.flush()  # blocks when a thread still writes
    assert not any(thread.name == "worker-output" for thread in threading.enumerate())


def test_a_pipe_that_is_read_only_afterwards_takes_47_kilobytes(pipe: Pipe) -> None:
    err = io.StringIO()
    lines = of(pipe.out, err)
    text = "z" * 84
    lines.put(batch(*(text for _ in range(500))))
    lines.close()
    assert pipe.unread() == f"(f pid=1) {text}\n" * 500
    assert err.getvalue() == ""  # it gave nothing up


def test_the_programs_own_output_still_fits_into_a_pipe_that_nobody_reads(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printing, "PATIENCE_S", 0.1)
    err = io.StringIO()
    lines = of(pipe.out, err)
    lines.put(batch(*("z" * 84 for _ in range(1000))))
    lines.close()
    assert "Lines of workers are missing" in err.getvalue()
    os.set_blocking(pipe.out.fileno(), False)
    for text in ("x" * 4000, "y" * 8000):  # the first fills the binary buffer, the second the text stream
        pipe.out.write(text)
    pipe.out.flush()  # a BlockingIOError without room
    assert pipe.unread().endswith("x" * 4000 + "y" * 8000)


def test_a_driver_that_leaves_waits_from_the_last_text_that_found_room() -> None:
    now = 100.0
    room = Room(clock=lambda: now)
    assert room.wait(io.StringIO(), 1)
    now = 200.0
    assert room.patience_left_s(since=200.0) == printing.PATIENCE_S
    now = 203.0
    assert room.wait(io.StringIO(), 1)
    assert room.patience_left_s(since=200.0) == printing.PATIENCE_S
    now = 204.0
    assert room.patience_left_s(since=200.0) == printing.PATIENCE_S - 1.0
    now = 300.0
    assert room.patience_left_s(since=200.0) < 0


def test_dropping_what_was_given_up_is_waited_for(pipe: Pipe) -> None:
    now = 100.0
    room = Room(clock=lambda: now)
    pipe.fill()
    room.give_up()
    now = 200.0
    assert not room.wait(pipe.out, 1)
    assert room.patience_left_s(since=150.0) == printing.PATIENCE_S


def test_what_finds_no_room_in_the_queue_is_counted(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing, "MAX_QUEUED", 5000)
    pipe.fill()
    err = io.StringIO()
    lines = of(pipe.out, err)
    for number in range(500):
        lines.put(batch(f"line {number}", "and another"))
    reading = threading.Thread(target=lambda: os.read(pipe.read_fd, 1 << 20))
    reading.start()
    lines.close()
    reading.join(LIMIT_S)
    printed = pipe.read_all().count("(f pid=1)")
    assert 0 < printed < 1000
    missing = re.findall(r"\(driver\) (\d+) lines of workers are missing here", err.getvalue())
    assert sum(map(int, missing)) == 1000 - printed


def test_a_stream_that_raises_does_not_end_the_printing() -> None:
    class Raises(io.StringIO):
        def write(self, text: str) -> int:
            if "bad" in text:
                raise RuntimeError("no luck")
            return super().write(text)

    out = Raises()
    lines = of(out)
    for word in ("one", "bad", "two"):
        lines.put(batch(word))
    lines.close()
    assert out.getvalue() == "(f pid=1) one\n(f pid=1) two\n"


def test_nothing_printed_needs_no_thread() -> None:
    lines = of(io.StringIO())
    lines.close()
    assert lines._thread is None
