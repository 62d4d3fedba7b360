"""What is printed, and how."""

from __future__ import annotations

import io
import sys

import pytest

from clusterctl import output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_tables_are_aligned() -> None:
    assert output.table(("a", "bb"), [("long", 1), ("x", 22)]) == ["a     bb", "long  1", "x     22"]
    assert output.table(("a",), []) == ["a"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (61, "1 min 1 s"), (3700, "1 h 1 min"), (200000, "2 days")],
)
def test_durations(seconds: float, text: str) -> None:
    assert output.duration(seconds) == text


@pytest.mark.parametrize(
    ("amount", "text"), [(5, "5 B"), (2048, "2.0 KiB"), (3 * 2**30, "3.0 GiB"), (2**41, "2.0 TiB")]
)
def test_sizes(amount: float, text: str) -> None:
    assert output.size(amount) == text


def test_colours_only_on_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert output.styled("x", "red", Terminal()) == "\x1b[31mx\x1b[0m"
    assert output.styled("x", "red", io.StringIO()) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.styled("x", "red", Terminal()) == "x"


def test_results_and_progress_go_apart(capsys: pytest.CaptureFixture[str]) -> None:
    output.say("result")
    output.progress("doing")
    output.error("bad", "do this")
    out, err = capsys.readouterr()
    assert out == "result\n"
    assert err == "doing\nerror: bad\ndo this\n"


def test_without_a_terminal_the_answer_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert not output.confirm("sure?")
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert output.confirm("sure?")


def test_that_nobody_reads_it_stops_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Closed())
    output.progress("ending 3 machines")
    output.warn("one does not answer")
    output.error("it failed", "Try again.")
