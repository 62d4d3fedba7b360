"""The thread that prints what workers write, so that a driver goes on although nobody reads its output."""

from __future__ import annotations

import fcntl
import os
import select
import stat
import struct
import termios
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TextIO

from runtime._transport.failures import report
from runtime._wire.messages.node import DriverLogs, Output, TakeOutput
from runtime.exceptions import RayError

from .driver_logs import LogPrinter

MAX_QUEUED = 64 << 20
"""Characters that may wait to be printed. Lines beyond that are dropped and counted."""
_LINE_OVERHEAD = 64
PATIENCE_S = 5.0
"""A driver that leaves gives up its output when nobody has read any of it for this long."""
TAKE_TIMEOUT_S = 10.0
_LOOK_S = 0.02
_RESERVE_BYTES = 12 << 10
"""Stays free in a pipe: as much as the program's own text stream (8 KiB) and its binary buffer (4 KiB) may hold.
A write of ours flushes them too. A thread that blocks there would hold the lock of `sys.stdout`, which the interpreter
needs at its exit."""


class Room:
    """Waits until a stream takes text without blocking.

    Args:
        clock: the time in seconds, as `time.monotonic`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._given_up = threading.Event()
        self._moved_at = clock()

    def patience_left_s(self, since: float) -> float:
        """How much longer a driver that leaves waits: until no wait for room has ended for `PATIENCE_S`.

        Args:
            since: when it began to leave, by the clock.
        """
        return max(since, self._moved_at) + PATIENCE_S - self.clock()

    def give_up(self) -> None:
        """Ends every wait: nobody reads the output."""
        self._given_up.set()

    def wait(self, stream: TextIO, size_bytes: int) -> bool:
        """Returns True when there is room for that much (at most `PIPE_BUF`), and False after `give_up`."""
        try:
            fd = stream.fileno()
        except (AttributeError, OSError, ValueError):  # no file at all, or a closed one
            self._moved_at = self.clock()
            return True
        try:
            while not _has_room(fd, size_bytes):
                if self._given_up.wait(_LOOK_S):
                    return False
        except OSError:
            pass  # it is closed, which writing tells
        finally:
            self._moved_at = self.clock()
        return True


def _has_room(fd: int, size_bytes: int) -> bool:
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return True
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    ready = poller.poll(0)
    if not ready or ready[0][1] & ~select.POLLOUT or not stat.S_ISFIFO(mode):
        return bool(ready)  # with an error, writing tells
    (unread,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))
    size = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    return bool(size - unread >= min(size_bytes + _RESERVE_BYTES, size))


class Printing:
    """The lines between the engine and a `LogPrinter`.

    Args:
        printer: what prints, on the thread.
        room: what the printer waits for before it writes.
    """

    def __init__(self, printer: LogPrinter, room: Room) -> None:
        self._printer = printer
        self._room = room
        self._waiting: deque[tuple[int, DriverLogs]] = deque()  # with the lines that were dropped before it
        self._size = 0
        self._dropped = 0
        self._news = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    def put(self, batch: DriverLogs) -> None:
        """Has a batch printed. Never blocks: the engine calls it under its lock."""
        size = sum(map(len, batch.lines)) + _LINE_OVERHEAD * len(batch.lines)
        with self._news:
            if self._closing or (self._size + size > MAX_QUEUED and self._waiting):
                self._dropped += len(batch.lines)
                return
            dropped, self._dropped = self._dropped, 0
            self._waiting.append((dropped, batch))
            self._size += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="worker-output", daemon=True)
                self._thread.start()
            self._news.notify()

    def take_rest(self, call_agent: Callable[[TakeOutput, float], Any], job_id: bytes) -> None:
        """The driver leaves: takes what its workers have written and nobody has sent yet.

        Args:
            call_agent: calls the node agent with a timeout in seconds, and returns its reply.
        """
        try:
            rest = call_agent(TakeOutput(job_id), TAKE_TIMEOUT_S)
        except (OSError, RayError):
            return  # the node agent is gone, and the output with it
        if isinstance(rest, Output):
            for batch in rest.batches:
                self.put(batch)

    def close(self) -> None:
        """Prints what is left, and gives up when nobody has read any of the output for `PATIENCE_S`."""
        with self._news:
            self._closing = True
            self._news.notify()
            thread = self._thread
        if thread is None:
            self._printer.flush()
            return
        if self._ends(thread):
            return
        self._room.give_up()
        if self._ends(thread):  # else a stream of the program's own blocks
            self._printer.note(f"Lines of workers are missing: nobody read this output for {PATIENCE_S:g} s.")

    def _ends(self, thread: threading.Thread) -> bool:
        """Waits for the end of the thread, as long as it moves."""
        since = self._room.clock()
        while thread.is_alive() and (left_s := self._room.patience_left_s(since)) > 0:
            thread.join(left_s)
        return not thread.is_alive()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            dropped, batch = item
            self._attempt(lambda: self._say_dropped(dropped))  # noqa: B023 - called at once
            self._attempt(lambda: self._printer.print(batch))  # noqa: B023
        self._attempt(self._printer.flush)
        self._attempt(lambda: self._say_dropped(self._dropped))

    def _next(self) -> tuple[int, DriverLogs] | None:
        """The next batch; None when there will be none."""
        with self._news:
            while not self._waiting:
                if self._closing:
                    return None
                self._news.wait()
            dropped, batch = self._waiting.popleft()
            self._size -= sum(map(len, batch.lines)) + _LINE_OVERHEAD * len(batch.lines)
            return dropped, batch

    def _say_dropped(self, lines: int) -> None:
        if lines:
            self._printer.note(f"{lines} lines of workers are missing here: this output was read too slowly.")

    @staticmethod
    def _attempt(job: Callable[[], None]) -> None:
        """A stream of the program's own may raise anything: the lines after that are to be printed all the same."""
        try:
            job()
        except Exception:
            report("printing the output of workers")
