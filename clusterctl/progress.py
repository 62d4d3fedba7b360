"""What a person sees while a cluster comes up: a small table that is redrawn in place on a terminal, plain lines
elsewhere. All of it goes to stderr. Programs may be told the same as events."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self

from clusterctl import settings
from clusterctl.launcher.wait import JOINED, NodeRow
from clusterctl.output import duration, table, tell

_REDRAW_S = 0.5
_ROOM = 6
"""Lines of the terminal that the table leaves to what was there before."""


@dataclass(slots=True)
class _Entry:
    row: NodeRow
    since_s: float
    spent_s: dict[str, float]


class Board:
    """All nodes that were seen, and since when each does what it does. Pure."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def update(self, rows: Iterable[NodeRow], now_s: float) -> list[NodeRow]:
        """Takes in where these nodes stand; returns those that stand elsewhere than before. Others stay as they
        were."""
        changed = []
        for row in rows:
            entry = self._entries.get(row.name)
            if entry is None:
                self._entries[row.name] = _Entry(row, now_s, {})
                changed.append(row)
            elif entry.row.doing != row.doing:
                _count(entry, now_s)
                entry.row, entry.since_s = row, now_s
                changed.append(row)
        return changed

    def rows(self, now_s: float) -> list[tuple[NodeRow, float]]:
        """Every node, and for how long it has done what it does; those that have not joined first."""
        found = [(entry.row, now_s - entry.since_s) for entry in self._entries.values()]
        return sorted(found, key=lambda item: item[0].doing == JOINED)

    def spent(self, now_s: float) -> dict[str, dict[str, float]]:
        """Node -> what it did -> for how long; without what it does now that it has joined."""
        out = {}
        for name, entry in self._entries.items():
            spent = dict(entry.spent_s)
            if entry.row.doing != JOINED:
                spent[entry.row.doing] = spent.get(entry.row.doing, 0.0) + now_s - entry.since_s
            out[name] = spent
        return out


def _count(entry: _Entry, now_s: float) -> None:
    doing = entry.row.doing
    entry.spent_s[doing] = entry.spent_s.get(doing, 0.0) + now_s - entry.since_s


class Progress:
    """Lines and nodes, as they come. While it is entered, the table of a terminal is kept up to date.

    Args:
        live: draw a table. Default: if stderr is a terminal that can.
        on_event: is told of each line and of each change of a node, one at a time, until it raises OSError: that nobody
            listens any more is no reason to stop.
    """

    def __init__(
        self,
        stream: IO[str] | None = None,
        live: bool | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        is_able = self._stream.isatty() and settings.TERMINAL.get() not in ("", "dumb")
        self._live = is_able if live is None else live
        self._on_event = on_event
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
            self._tell("progress", text=text)
            self._redraw(text)

    def nodes(self, rows: Iterable[NodeRow]) -> None:
        """Where nodes stand."""
        with self._lock:
            changed = self._board.update(rows, time.monotonic())
            for row in changed:
                self._tell("node", node=row.name, node_type=row.node_type, doing=row.doing)
                if not self._live:
                    self._redraw(f"  {row.name} ({row.node_type}): {row.doing}")
            if self._live:
                self._redraw()

    def spent(self) -> dict[str, dict[str, float]]:
        """Node -> what it did -> for how long, in seconds."""
        return self._board.spent(time.monotonic())

    def _tell(self, event: str, **what: str) -> None:
        if self._on_event is not None:
            try:
                self._on_event({"event": event, "at_s": round(time.time(), 3), **what})
            except OSError:
                self._on_event = None

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
            tell(self._stream, text)

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
