"""Progress on a real terminal, in a pipe, and after errors; metrics while a data set runs."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, time
import runtime as ray
import runtime.data
from runtime.data import DataContext

case = sys.argv[1]
DataContext.get_current().enable_operator_progress_bars = case != "totals"
DataContext.get_current().enable_progress_bars = case != "off"

def slow(batch):
    time.sleep(0.15)
    if case == "error" and 1500 in batch["id"]:
        raise ValueError("poisoned")
    return batch

ray.init(num_cpus=2, logging_level="ERROR")
numbers = ray.data.range(2000, override_num_blocks=200 if case == "interrupt" else 12).map_batches(slow)
numbers.set_name("numbers")
try:
    for batch in numbers.iter_batches(batch_size=500):
        print("a batch of", len(batch["id"]), flush=True)
except ValueError:
    print("it failed")
except KeyboardInterrupt:
    print("interrupted")
print("the end", flush=True)
"""


class OnTerminal:
    """A program at a terminal of its own.

    Args:
        case: see `PROGRAM`.
    """

    def __init__(self, tmp_path: Path, case: str) -> None:
        program = tmp_path / "program.py"
        program.write_text(PROGRAM)
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, str(program), case],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""

    def read_some(self) -> bool:
        try:
            found = os.read(self._master, 1 << 16)
        except OSError:  # the last program has left the terminal
            return False
        self.seen += found.decode()
        return bool(found)

    def read_all(self) -> str:
        while self.read_some():
            pass
        self.process.wait()
        os.close(self._master)
        return self.seen


def screen(text: str) -> list[str]:
    """The lines that stay, after the cursor has gone up and lines were cleared."""
    lines = [""]
    for part in re.split(r"(\r?\n|\x1b\[F\x1b\[K)", text):
        if part.endswith("\n"):
            lines.append("")
        elif part == "\x1b[F\x1b[K":
            lines.pop()
            lines[-1] = ""
        else:
            lines[-1] += part
    return [line for line in lines if line]


def test_a_terminal_shows_a_bar_for_each_operator_below_what_is_printed(tmp_path: Path) -> None:
    seen = OnTerminal(tmp_path, "plain").read_all()
    assert re.search(r"numbers_0: \S+ rows, .* held, \d+ s\r\n", seen)
    assert re.search(r"  ReadRange->map_batches\(slow\) +\d+%\|#* *\| \d+/12 tasks", seen)
    left = screen(seen)
    assert [line for line in left if "batch" in line] == ["a batch of 500"] * 4
    assert not [line for line in left if "|" in line]
    assert re.fullmatch(r"numbers_0: 2.0k rows in \d+\.\d s", left[-2])
    assert left[-1] == "the end"


def test_after_an_error_and_an_interrupt_the_bars_are_gone(tmp_path: Path) -> None:
    left = screen(OnTerminal(tmp_path, "error").read_all())
    assert re.fullmatch(r"numbers_0: \S+ rows failed after \d+\.\d s", left[-3])
    assert left[-2:] == ["it failed", "the end"]
    program = OnTerminal(tmp_path, "interrupt")
    while "tasks" not in program.seen and program.read_some():
        pass
    program.process.send_signal(signal.SIGINT)
    left = screen(program.read_all())
    assert left[-2:] == ["interrupted", "the end"]
    assert not [line for line in left if "|" in line]


def test_the_context_turns_bars_off(tmp_path: Path) -> None:
    assert "rows" not in OnTerminal(tmp_path, "off").read_all()
    totals = OnTerminal(tmp_path, "totals").read_all()
    assert "held" in totals
    assert "tasks" not in totals


def test_a_pipe_shows_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(program), "plain"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*["a batch of 500"] * 4, "the end"]
    assert "rows" not in done.stderr
