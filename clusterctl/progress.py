"""What a person sees while a cluster comes up: a small table that is redrawn in place on a terminal, plain lines
elsewhere. All of it goes to stderr."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import IO, Self

from clusterctl.launcher.board import Board, NodeRow
from clusterctl.output import duration, table

_REDRAW_S = 0.5
_ROOM = 6
"""Lines of the terminal that the table leaves to what was there before."""


class Progress:
    """Lines and nodes, as they come. While it is entered, the table of a terminal is kept up to date.

    Args:
        live: draw a table. Default: if stderr is a terminal that can.
    """

    def __init__(self, stream: IO[str] | None = None, live: bool | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        is_able = self._stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._live = is_able if live is None else live
        self._board = Board()
        self._drawn = 0
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._drawer: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._live:
            self._drawer = threading.Thread(target=self._keep_drawing, name="progress", daemon=True)
            self._drawer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._drawer is not None:
            self._drawer.join()
            self._redraw()

    def say(self, text: str) -> None:
        """One line about what happens now."""
        with self._lock:
            self._redraw(text)

    def nodes(self, rows: Iterable[NodeRow]) -> None:
        """Where nodes stand."""
        with self._lock:
            changed = self._board.update(rows, time.monotonic())
            if self._live:
                self._redraw()
            else:
                for row in changed:
                    self.say(f"  {row.name} ({row.node_type}): {row.doing}")

    def spent(self) -> dict[str, dict[str, float]]:
        """Node -> what it did -> for how long, in seconds."""
        return self._board.spent(time.monotonic())

    def _keep_drawing(self) -> None:
        while not self._over.wait(_REDRAW_S):
            self._redraw()

    def _redraw(self, line: str | None = None) -> None:
        """Takes the table away, writes the line, and draws the table again."""
        with self._lock:
            text = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
            if line is not None:
                text += line + "\n"
            lines = self._table() if self._live else []
            text += "".join(f"{one}\n" for one in lines)
            self._drawn = len(lines)
            self._stream.write(text)
            self._stream.flush()

    def _table(self) -> list[str]:
        found = self._board.rows(time.monotonic())
        if not found:
            return []
        size = shutil.get_terminal_size()
        most = max(1, size.lines - _ROOM)
        rows = [(row.name, row.node_type, row.doing, duration(since)) for row, since in found[:most]]
        lines = table(("node", "type", "does", "for"), rows)
        if len(found) > most:
            lines.append(f"and {len(found) - most} more")
        return [f"  {line}"[: size.columns - 1] for line in lines]
