"""What workers print, at the driver: prefixed, coloured, and with repeats across the cluster folded."""

from __future__ import annotations

import io
import re
import select
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TextIO

from runtime._system import settings
from runtime._wire.messages.control import AUTOSCALER
from runtime._wire.messages.node import DriverLogs

from . import progress

_NUMBER = re.compile(r"\d")
_HINT = " (RAY_DEDUP_LOGS=0 shows every line)"
_PIECE_BYTES = select.PIPE_BUF
"""What is written at once: a pipe that can be written to takes that much without blocking."""
_COLORS = (36, 35, 33, 32, 34, 31)


class _Repeat:
    __slots__ = ("count", "error", "first_at", "last", "source")

    def __init__(self, now: float, source: tuple[str, int], error: bool) -> None:
        self.first_at = now
        self.source = source
        self.error = error
        self.count = 0
        self.last = ""


def _alike(line: str) -> str:
    """What lines that say the same have in common: their words without those that hold a number."""
    return " ".join(word for word in line.split() if not _NUMBER.search(word))


class LogPrinter:
    """Prints batches. A line that other processes print as well within the window, give or take its numbers, is
    printed once; the last of them with the number of repeats follows when the window ends.

    The environment decides what is folded: RAY_DEDUP_LOGS=0 nothing, RAY_DEDUP_LOGS_ALLOW_REGEX what is never folded,
    RAY_DEDUP_LOGS_SKIP_REGEX what is never even printed, RAY_DEDUP_LOGS_AGG_WINDOW_S the window. RAY_SCHEDULER_EVENTS=0
    leaves out why work waits.

    Args:
        host: the driver's own host: lines from there carry no address.
        room: waits until so many bytes can be written to a stream; False: they never can.
        with_prefix: whether lines say who wrote them. Lines of a `LoggingConfig` carry that themselves, and a prefix
            would make JSON unreadable for programs.
    """

    def __init__(
        self,
        host: str,
        out: TextIO | None = None,
        err: TextIO | None = None,
        room: Callable[[TextIO, int], bool] = lambda _stream, _size_bytes: True,
        *,
        with_prefix: bool = True,
    ) -> None:
        self._with_prefix = with_prefix
        self._host = host
        self._out = out
        self._err = err
        self._room = room
        self._folds = settings.DEDUP_LOGS.get()
        self._window_s = settings.DEDUP_WINDOW_S.get()
        self._colors = settings.COLOR_PREFIX.get()
        self._allowed = settings.DEDUP_ALLOW.get()
        self._skipped = settings.DEDUP_SKIP.get()
        self._explains_waits = settings.SCHEDULER_EVENTS.get()
        self._began = time.monotonic()
        self._hinted = False
        self._seen: OrderedDict[str, _Repeat] = OrderedDict()  # the first that was printed comes first
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def print(self, batch: DriverLogs, now: float | None = None) -> None:
        """Prints the lines of a batch."""
        if _is_autoscaler(batch) and not self._explains_waits:
            return
        at = time.monotonic() if now is None else now
        source = (batch.host, batch.pid)
        with self._lock:
            self._expire(at)
            prefix = self._prefix(batch, at)
            for line in batch.lines:
                if progress.TOKEN in line and self._take_bar(line):
                    continue
                if self._folds and self._skipped is not None and self._skipped.search(line):
                    continue
                if self._folds and not self._is_first(line, source, prefix, batch.is_error_stream, at):
                    continue
                self._write(f"{prefix}{line}\n", batch.is_error_stream)

    def _take_bar(self, line: str) -> bool:
        return not self._room(self._stream(True), _PIECE_BYTES) or progress.manager(self._host).take_line(
            line
        )

    def note(self, text: str) -> None:
        """Prints a remark on the output itself."""
        with self._lock:
            self._write(f"(driver) {text}\n", True)

    def _is_first(self, line: str, source: tuple[str, int], prefix: str, error: bool, at: float) -> bool:
        """Whether the line is to be printed now; if not, it is counted."""
        key = _alike(line)
        if not key or (self._allowed is not None and self._allowed.search(line)):
            return True
        repeat = self._seen.get(key)
        if repeat is None:
            self._seen[key] = _Repeat(at, source, error)
            return True
        if repeat.source == source:
            return True
        repeat.count += 1
        repeat.last = prefix + line
        self._expire_later()
        return False

    def _expire_later(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(self._window_s, self._window_over)
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
        while self._seen:
            key, repeat = next(iter(self._seen.items()))
            if now - repeat.first_at < self._window_s:
                break
            del self._seen[key]
            if repeat.count == 1:
                self._write(f"{repeat.last}\n", repeat.error)
            elif repeat.count:
                note = f" [repeated {repeat.count}x across cluster]"
                hint, self._hinted = ("" if self._hinted else _HINT), True
                self._write(f"{repeat.last}{note}{hint}\n", repeat.error)

    def _prefix(self, batch: DriverLogs, now: float) -> str:
        if not self._with_prefix and batch.pid:
            return ""
        where = "" if batch.host == self._host else f", ip={batch.host}"
        name = f"{batch.name} " if batch.name else ""
        text = f"({name}pid={batch.pid}{where})" if batch.pid else f"({batch.name})"
        if _is_autoscaler(batch):
            text = f"({batch.name} +{_elapsed(now - self._began)})"
        stream = self._stream(batch.is_error_stream)
        if stream.closed or not (stream.isatty() if self._colors is None else self._colors):
            return text + " "
        return f"\x1b[{_COLORS[batch.pid % len(_COLORS)]}m{text}\x1b[0m "

    def _stream(self, error: bool) -> TextIO:
        return (self._err or sys.stderr) if error else (self._out or sys.stdout)

    def _write(self, text: str, error: bool) -> None:
        stream = self._stream(error)
        bars = progress.manager_or_none()
        try:
            if bars is not None:
                if not self._room(self._stream(True), _PIECE_BYTES):
                    return
                bars.hide_bars()
            for piece, size_bytes in _pieces(text, stream):
                if not self._room(stream, size_bytes):
                    return
                stream.write(piece)
                stream.flush()
        except (OSError, ValueError):
            return  # the program closed its output: nobody is left to read
        finally:
            if bars is not None:
                bars.unhide_bars()


def _is_autoscaler(batch: DriverLogs) -> bool:
    return not batch.pid and batch.name == AUTOSCALER


def _elapsed(seconds: float) -> str:
    """A time since the start, as in 1h2m3s."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{rest}s"


def _pieces(text: str, stream: TextIO) -> Iterator[tuple[str, int]]:
    """Cuts a text into pieces of at most `_PIECE_BYTES` on the stream, and yields each with its size in bytes."""
    start = 0
    while start < len(text):
        piece = text[start : start + _PIECE_BYTES]
        while (size_bytes := _size_bytes(piece, stream)) > _PIECE_BYTES:
            piece = piece[: len(piece) * _PIECE_BYTES // size_bytes]
        yield piece, size_bytes
        start += len(piece)


def _size_bytes(text: str, stream: TextIO) -> int:
    if isinstance(stream, io.TextIOWrapper):
        return len(text.encode(stream.encoding, stream.errors or "strict"))
    return len(text.encode(errors="surrogatepass"))
