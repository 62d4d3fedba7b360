"""What workers print, at the driver: prefixed, coloured, and with repeats across the cluster folded."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TextIO

from runtime._wire.messages.node import DriverLogs

FOLD_WINDOW_S = float(os.environ.get("RAY_DEDUP_LOGS_AGG_WINDOW_S", "5"))
_COLORS = (36, 35, 33, 32, 34, 31)


class _Repeat:
    __slots__ = ("count", "error", "first_at", "prefix", "source")

    def __init__(self, now: float, source: tuple[str, int], prefix: str, error: bool) -> None:
        self.first_at = now
        self.source = source
        self.prefix = prefix
        self.error = error
        self.count = 0


class LogPrinter:
    """Prints batches. A line that other processes print as well within the window is printed once; a note with the
    number of repeats follows when the window ends.

    Args:
        host: the driver's own host: lines from there carry no address.
    """

    def __init__(self, host: str, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._host = host
        self._out = out
        self._err = err
        self._folds = os.environ.get("RAY_DEDUP_LOGS", "1") != "0"
        self._seen: dict[str, _Repeat] = {}
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def print(self, batch: DriverLogs, now: float | None = None) -> None:
        """Prints the lines of a batch."""
        at = time.monotonic() if now is None else now
        source = (batch.host, batch.pid)
        with self._lock:
            self._expire(at)
            prefix = self._prefix(batch)
            for line in batch.lines:
                if self._folds and line.strip():
                    repeat = self._seen.get(line)
                    if repeat is not None and repeat.source != source:
                        repeat.count += 1
                        self._expire_later()
                        repeat.prefix = prefix
                        continue
                    if repeat is None:
                        self._seen[line] = _Repeat(at, source, prefix, batch.is_error_stream)
                self._write(f"{prefix}{line}\n", batch.is_error_stream)

    def _expire_later(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(FOLD_WINDOW_S, self._window_over)
            self._timer.daemon = True
            self._timer.start()

    def _window_over(self) -> None:
        with self._lock:
            self._timer = None
            self._expire(time.monotonic())
            if any(repeat.count for repeat in self._seen.values()):
                self._expire_later()

    def flush(self) -> None:
        """Ends every window now."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._expire(float("inf"))

    def _expire(self, now: float) -> None:
        for line, repeat in list(self._seen.items()):
            if now - repeat.first_at >= FOLD_WINDOW_S:
                del self._seen[line]
                if repeat.count == 1:
                    self._write(f"{repeat.prefix}{line}\n", repeat.error)
                elif repeat.count:
                    note = f" [repeated {repeat.count}x across cluster]"
                    self._write(f"{repeat.prefix}{line}{note}\n", repeat.error)

    def _prefix(self, batch: DriverLogs) -> str:
        where = "" if batch.host == self._host else f", ip={batch.host}"
        name = f"{batch.name} " if batch.name else ""
        text = f"({name}pid={batch.pid}{where})" if batch.pid else f"({batch.name})"
        stream = self._stream(batch.is_error_stream)
        if stream.closed or not stream.isatty() or os.environ.get("RAY_COLOR_PREFIX") == "0":
            return text + " "
        return f"\x1b[{_COLORS[batch.pid % len(_COLORS)]}m{text}\x1b[0m "

    def _stream(self, error: bool) -> TextIO:
        return (self._err or sys.stderr) if error else (self._out or sys.stdout)

    def _write(self, text: str, error: bool) -> None:
        stream = self._stream(error)
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError):
            return  # the program closed its output: nobody is left to read
