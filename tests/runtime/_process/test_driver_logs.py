"""What workers print at the driver: prefixes, and repeats folded into one line and a count."""

from __future__ import annotations

import io
import select
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from runtime._process import driver_logs, progress
from runtime._process.driver_logs import LogPrinter, _Repeat
from runtime._system import settings
from runtime._wire.messages.control import AUTOSCALER
from runtime._wire.messages.node import DriverLogs

HOST = "10.0.0.1"
FOLD_WINDOW_S = settings.DEDUP_WINDOW_S.default


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Screen:
    """A printer and what it has printed."""

    def __init__(self, out: io.StringIO | None = None) -> None:
        self.out = out or io.StringIO()
        self.err = io.StringIO()
        self.printer = LogPrinter(HOST, self.out, self.err)

    def print(
        self,
        *lines: str,
        pid: int = 1,
        host: str = HOST,
        name: str = "f",
        error: bool = False,
        now: float = 0.0,
    ) -> None:
        self.printer.print(DriverLogs(host, pid, name, error, list(lines)), now)

    def shown(self) -> list[str]:
        return self.out.getvalue().splitlines()


@pytest.fixture
def screen() -> Iterator[Screen]:
    screen = Screen()
    yield screen
    screen.printer.flush()


def test_a_line_says_who_printed_it(screen: Screen) -> None:
    screen.print("hello", pid=17, name="train")
    assert screen.shown() == ["(train pid=17) hello"]


def test_a_process_without_a_name(screen: Screen) -> None:
    screen.print("hello", pid=17, name="")
    assert screen.shown() == ["(pid=17) hello"]


def test_lines_of_another_host_say_so(screen: Screen) -> None:
    screen.print("hello", pid=17, host="10.0.0.9")
    assert screen.shown() == ["(f pid=17, ip=10.0.0.9) hello"]


def test_errors_go_to_the_error_stream(screen: Screen) -> None:
    screen.print("oh", error=True)
    assert screen.shown() == []
    assert screen.err.getvalue() == "(f pid=1) oh\n"


@pytest.mark.parametrize(("seconds", "shown"), [(11.9, "11s"), (75, "1m15s"), (3607, "1h0m7s")])
def test_the_autoscaler_says_how_long_the_driver_has_run(screen: Screen, seconds: float, shown: str) -> None:
    screen.print("work waits", pid=0, name=AUTOSCALER, now=time.monotonic() + seconds)
    assert screen.shown() == [f"(autoscaler +{shown}) work waits"]


def test_lines_of_the_cluster_itself_have_its_name(screen: Screen) -> None:
    screen.print("a worker died", pid=0, name="cluster")
    assert screen.shown() == ["(cluster) a worker died"]


def test_the_autoscaler_can_be_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_SCHEDULER_EVENTS", "0")
    screen = Screen()
    screen.print("work waits", pid=0, name=AUTOSCALER)
    screen.print("a worker died", pid=0, name="cluster")
    assert screen.shown() == ["(cluster) a worker died"]


def test_one_process_may_repeat_itself(screen: Screen) -> None:
    screen.print("tick", "tick", now=0)
    screen.print("tick", now=1)
    assert screen.shown() == ["(f pid=1) tick"] * 3


def test_the_same_line_of_others_is_folded(screen: Screen) -> None:
    for pid in (1, 2, 3, 4):
        screen.print("ready", pid=pid, now=0.1 * pid)
    assert screen.shown() == ["(f pid=1) ready"]
    screen.print("later", pid=1, now=0.1 + FOLD_WINDOW_S)
    assert screen.shown() == [
        "(f pid=1) ready",
        "(f pid=4) ready [repeated 3x across cluster] (RAY_DEDUP_LOGS=0 shows every line)",
        "(f pid=1) later",
    ]


def test_one_repeat_is_printed_as_it_is(screen: Screen) -> None:
    screen.print("ready", pid=1)
    screen.print("ready", pid=2)
    screen.printer.flush()
    assert screen.shown() == ["(f pid=1) ready", "(f pid=2) ready"]


def test_processes_of_the_same_pid_on_two_hosts_are_two(screen: Screen) -> None:
    screen.print("ready", pid=1)
    screen.print("ready", pid=1, host="10.0.0.2")
    assert screen.shown() == ["(f pid=1) ready"]


def test_different_lines_are_not_folded(screen: Screen) -> None:
    screen.print("step one", pid=1)
    screen.print("step two", pid=2)
    assert len(screen.shown()) == 2


def test_lines_that_differ_in_numbers_only_are_folded_and_the_last_is_shown(screen: Screen) -> None:
    for pid in (1, 2, 3):
        screen.print(f"step {pid} loss=0.{pid}", pid=pid)
    screen.printer.flush()
    first, last = screen.shown()
    assert first == "(f pid=1) step 1 loss=0.1"
    assert last.startswith("(f pid=3) step 3 loss=0.3 [repeated 2x across cluster]")


def test_lines_of_numbers_alone_are_not_folded(screen: Screen) -> None:
    screen.print("1", pid=1)
    screen.print("2", pid=2)
    assert len(screen.shown()) == 2


def test_what_may_never_be_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_DEDUP_LOGS_ALLOW_REGEX", "^METRIC")
    screen = Screen()
    for pid in (1, 2, 3):
        screen.print("METRIC x", "other", pid=pid)
    assert sum("METRIC" in line for line in screen.shown()) == 3
    assert sum("other" in line for line in screen.shown()) == 1
    screen.printer.flush()


def test_what_is_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_DEDUP_LOGS_SKIP_REGEX", "noise")
    screen = Screen()
    screen.print("some noise", "a signal")
    assert screen.shown() == ["(f pid=1) a signal"]


def test_colours_can_be_asked_for_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_COLOR_PREFIX", "1")
    screen = Screen()
    screen.print("hello")
    assert screen.shown()[0].startswith("\x1b[")


def test_empty_lines_are_not_folded(screen: Screen) -> None:
    screen.print("", " ", pid=1)
    screen.print("", " ", pid=2)
    assert len(screen.shown()) == 4


def test_a_window_ends_and_another_begins(screen: Screen) -> None:
    for start in (0.0, FOLD_WINDOW_S, 2 * FOLD_WINDOW_S):
        for pid in (1, 2, 3):
            screen.print("ready", pid=pid, now=start)
    screen.printer.flush()
    hint = " (RAY_DEDUP_LOGS=0 shows every line)"
    twice = ["(f pid=1) ready", "(f pid=3) ready [repeated 2x across cluster]"]
    assert screen.shown() == [twice[0], twice[1] + hint, *twice, *twice]


def test_flushing_twice_says_it_once(screen: Screen) -> None:
    for pid in (1, 2, 3):
        screen.print("ready", pid=pid)
    screen.printer.flush()
    screen.printer.flush()
    assert len(screen.shown()) == 2


def test_a_folded_error_stays_an_error(screen: Screen) -> None:
    for pid in (1, 2, 3):
        screen.print("oh", pid=pid, error=True)
    screen.printer.flush()
    assert screen.shown() == []
    assert "[repeated 2x across cluster]" in screen.err.getvalue()


def test_folding_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_DEDUP_LOGS", "0")
    screen = Screen()
    for pid in (1, 2, 3):
        screen.print("ready", pid=pid)
    assert len(screen.shown()) == 3


def test_no_colours_in_a_file(screen: Screen) -> None:
    screen.print("hello")
    assert "\x1b" not in screen.out.getvalue()


def test_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_COLOR_PREFIX", raising=False)
    screen = Screen(Terminal())
    screen.print("hello", pid=1)
    screen.print("hallo", pid=2)
    first, second = screen.shown()
    assert first.startswith("\x1b[")
    assert first.endswith("\x1b[0m hello")
    assert first.partition("m")[0] != second.partition("m")[0]


def test_colours_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_COLOR_PREFIX", "0")
    screen = Screen(Terminal())
    screen.print("hello")
    assert screen.shown() == ["(f pid=1) hello"]


def test_a_closed_output_is_nobodys_problem(screen: Screen) -> None:
    screen.out.close()
    screen.print("hello")
    screen.out = io.StringIO()


def test_a_batch_looks_only_at_lines_whose_window_is_over(screen: Screen) -> None:
    looked = 0

    class Seen(_Repeat):
        @property
        def first_at(self) -> float:
            nonlocal looked
            looked += 1
            return self.at

        @first_at.setter
        def first_at(self, at: float) -> None:
            self.at = at

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver_logs, "_Repeat", Seen)
        screen.print(*(f"line {'x' * number}" for number in range(200)))
        for _ in range(100):
            screen.print("line", now=FOLD_WINDOW_S / 2)
    assert looked < 500
    screen.print("line", now=FOLD_WINDOW_S)
    assert screen.shown()[-1].endswith("line")


@pytest.mark.parametrize(
    ("encoding", "errors"), [("utf-8", "strict"), ("utf-16", "strict"), ("ascii", "backslashreplace")]
)
def test_a_long_line_is_written_in_pieces_that_a_pipe_takes_whole(encoding: str, errors: str) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding, errors)
    sizes = []

    def room(_stream: TextIO, size_bytes: int) -> bool:
        sizes.append(size_bytes)
        return True

    text = "a" * 5000 + "\u20ac" * 5000 + "\U0001f600" * 5000
    LogPrinter(HOST, out, room=room).print(DriverLogs(HOST, 1, "f", False, [text]))
    assert max(sizes) <= select.PIPE_BUF
    written = out.buffer.getvalue()
    assert len(written) <= sum(sizes)
    assert written.decode(encoding).encode(encoding) == f"(f pid=1) {text}\n".encode(encoding, errors)


def test_a_line_of_ascii_fills_its_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_manager", None)  # with bars of earlier tests, room is asked for once more
    sizes = []

    def room(_stream: TextIO, size_bytes: int) -> bool:
        sizes.append(size_bytes)
        return True

    LogPrinter(HOST, io.StringIO(), room=room).print(DriverLogs(HOST, 1, "f", False, ["a" * 5000]))
    assert sizes == [4096, len("(f pid=1) ") + 5001 - 4096]
