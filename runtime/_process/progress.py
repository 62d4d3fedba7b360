"""Progress bars of workers, drawn by the driver below what it prints.

A worker prints the state of a bar as one line that begins with `TOKEN`; the line comes to the driver with the rest of
the worker's output.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, TextIO

TOKEN = "__ray_tqdm_magic_token__:"
_WIDTH = 20
_UP_AND_CLEAR = "\x1b[F\x1b[K"


class Bar:
    """The last known state of one bar."""

    def __init__(self, state: dict[str, Any], prefix: str) -> None:
        self.state = state
        self._prefix = prefix
        self._started_s = time.monotonic()

    def line(self) -> str:
        """How it looks now."""
        state = self.state
        done, total, unit = state["x"], state["total"], state["unit"]
        seconds = time.monotonic() - self._started_s
        rate = f"{done / seconds:.2f}{unit}/s" if seconds > 0 and done else f"?{unit}/s"
        name = f"{self._prefix}{state['desc']}: " if state["desc"] or self._prefix else ""
        if not total:
            return f"{name}{done}{unit} [{seconds:.0f}s, {rate}]"
        filled = int(_WIDTH * min(1.0, done / total))
        shown = "#" * filled + " " * (_WIDTH - filled)
        return f"{name}{100 * done / total:3.0f}%|{shown}| {done}/{total} [{seconds:.0f}s, {rate}]"


class BarManager:
    """All bars that this driver shows. On a terminal they stay below the other output; elsewhere a bar is printed
    once, when it ends.

    Args:
        host: this driver's node: bars of other nodes carry their address.
        stream: where to draw; default: standard error.
    """

    def __init__(self, host: str, stream: TextIO | None = None) -> None:
        self.lock = threading.RLock()
        self.bars: dict[str, Bar] = {}
        self.num_hides = 0
        self.in_hidden_state = False
        self._host = host
        self._stream = stream
        self._lines: dict[str, Sequence[str]] = {}
        self._last_lines: list[str] = []  # to be printed when nobody else prints
        self._drawn = 0  # lines of bars on the terminal

    @property
    def bar_groups(self) -> dict[tuple[str, int], list[Bar]]:
        """The bars by the process that they belong to."""
        groups: dict[tuple[str, int], list[Bar]] = {}
        for bar in self.bars.values():
            groups.setdefault((bar.state["ip"], bar.state["pid"]), []).append(bar)
        return groups

    def take_line(self, line: str) -> bool:
        """Takes a line of a worker's output; False when it is none of a bar."""
        start = line.find(TOKEN)
        if start < 0:
            return False
        try:
            state = json.loads(line[start + len(TOKEN) :])
        except ValueError:
            return False
        self.process_state_update(state)
        return True

    def process_state_update(self, state: dict[str, Any]) -> None:
        """Takes the news of one bar."""
        with self.lock:
            bar = self.bars.get(state["uuid"])
            if bar is None:
                bar = self.bars[state["uuid"]] = Bar(state, self._prefix(state))
            bar.state = state
            self._clear()
            if state["closed"]:
                del self.bars[state["uuid"]]
                self._write(bar.line() + "\n")
            self._draw()

    def show_lines(self, key: str, lines: Sequence[str]) -> None:
        """Shows lines below the bars, in place of those that were shown under the key. Only on a terminal."""
        with self.lock:
            self._lines[key] = lines
            self._clear()
            self._draw()

    def remove_lines(self, key: str, last_lines: Sequence[str] = ()) -> None:
        """Removes the lines of a key, and prints others for good if there were any."""
        with self.lock:
            if self._lines.pop(key, None) is None:
                return
            self._clear()
            if self._out().isatty():
                self._last_lines += last_lines
            self._draw()

    def hide_bars(self) -> None:
        """Takes the bars off the terminal, so that something else can be printed."""
        with self.lock:
            if not self.in_hidden_state:
                self.in_hidden_state = True
                self.num_hides += 1
                self._clear()

    def unhide_bars(self) -> None:
        """Draws the bars again."""
        with self.lock:
            if self.in_hidden_state:
                self.in_hidden_state = False
                self._draw()

    def _prefix(self, state: dict[str, Any]) -> str:
        if state["ip"] == self._host:
            return "" if state["pid"] == os.getpid() else f"(pid={state['pid']}) "
        return f"(pid={state['pid']}, ip={state['ip']}) "

    def _clear(self) -> None:
        if self._drawn:
            self._write(_UP_AND_CLEAR * self._drawn)
            self._drawn = 0

    def _draw(self) -> None:
        if self.in_hidden_state or not self._out().isatty():
            return
        bars = sorted(
            self.bars.values(), key=lambda bar: (bar.state["ip"], bar.state["pid"], bar.state["pos"])
        )
        lines = [*(bar.line() for bar in bars), *(line for each in self._lines.values() for line in each)]
        self._write("".join(f"{line}\n" for line in self._last_lines))
        self._last_lines = []
        columns, rows = self._size()
        if len(lines) >= rows:
            shown = max(0, rows - 2)
            lines = [*lines[:shown], f"... and {len(lines) - shown} more lines"]
        # A line that is wrapped, or scrolled away, could not be cleared again.
        self._write("".join(f"{line[: columns - 1]}\n" for line in lines))
        self._drawn = len(lines)

    def _size(self) -> tuple[int, int]:
        """The columns and rows of the terminal."""
        try:
            size = os.get_terminal_size(self._out().fileno())
        except (OSError, ValueError):
            return 1000, 1000
        return size.columns or 80, size.lines or 24

    def _out(self) -> TextIO:
        return self._stream or sys.stderr

    def _write(self, text: str) -> None:
        try:
            self._out().write(text)
            self._out().flush()
        except (OSError, ValueError):
            return  # nobody is left to read


_manager: BarManager | None = None
_lock = threading.Lock()


def manager(host: str) -> BarManager:
    """The one of this process."""
    global _manager
    with _lock:
        if _manager is None:
            _manager = BarManager(host)
        return _manager


def manager_or_none() -> BarManager | None:
    """The one of this process, if it has shown a bar."""
    return _manager
