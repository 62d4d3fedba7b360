"""Follows the output files of this node's workers and hands their lines on, a batch at a time.

A line that starts with `NAME_MARK` is not output: it names the task or actor whose lines follow.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

import msgspec

from runtime._core.workers import Worker
from runtime._wire.messages.control import LogBatch

from .file_watch import FileWatch

log = logging.getLogger(__name__)
NAME_MARK = "\x01name:"
MAX_LINES = 500
MAX_LINE_CHARS = 64 << 10
_READ_BYTES = 256 << 10
_QUICK_S = 0.1
_SLOW_S = 0.5
_QUIET_ROUNDS = 20


class LogFile(msgspec.Struct, eq=False):
    """One output file of one worker."""

    path: str
    job_id: bytes
    pid: int
    is_error_stream: bool
    offset: int = 0
    rest: bytes = b""
    name: str = ""

    def read(self) -> tuple[bool, list[tuple[str, list[str]]]]:
        """Reads a bounded part of what is new.

        Returns:
            Whether there may be more, and `(name, lines)` in order.
        """
        try:
            new_bytes = os.stat(self.path).st_size - self.offset
            if new_bytes <= 0:
                return False, []
            with open(self.path, "rb", buffering=0) as file:
                file.seek(self.offset)
                data = file.read(min(new_bytes, _READ_BYTES))
        except OSError as error:
            log.warning("cannot read %s: %s", self.path, error)
            return False, []
        self.offset += len(data)
        *whole, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > MAX_LINE_CHARS:
            whole.append(self.rest)
            self.rest = b""
        return len(data) == _READ_BYTES, self._group(whole)

    def read_end(self) -> list[tuple[str, list[str]]]:
        """Everything that is left, the unfinished last line included: the writer is dead, or the
        reader leaves."""
        groups: list[tuple[str, list[str]]] = []
        more = True
        while more:
            more, found = self.read()
            groups += found
        if self.rest:
            rest, self.rest = self.rest, b""
            for name, lines in self._group([rest]):
                if groups and groups[-1][0] == name:
                    groups[-1][1].extend(lines)
                else:
                    groups.append((name, lines))
        return groups

    def _group(self, raw: list[bytes]) -> list[tuple[str, list[str]]]:
        groups: list[tuple[str, list[str]]] = []
        for line in raw:
            text = line.decode("utf-8", "replace").rstrip("\r")
            if text.startswith(NAME_MARK):
                self.name = text[len(NAME_MARK) :]
                continue
            if not groups or groups[-1][0] != self.name or len(groups[-1][1]) >= MAX_LINES:
                groups.append((self.name, []))
            groups[-1][1].append(text[:MAX_LINE_CHARS])
        return groups


class LogMonitor:
    """All output files of the node's live workers.

    Args:
        node_id, host: of this node, for the batches.
        deliver: takes each batch.
    """

    def __init__(self, node_id: bytes, host: str, deliver: Callable[[LogBatch], None]) -> None:
        self._node_id = node_id
        self._host = host
        self._deliver = deliver
        self._files: dict[bytes, list[LogFile]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._quiet = 0
        self._watch = FileWatch(self.wake)

    def follow(self, worker: Worker, out: str, err: str) -> None:
        """A worker has opened its files. Repeating it does nothing."""
        if worker.worker_id in self._files:
            return
        self._files[worker.worker_id] = [
            LogFile(path, worker.job_id, worker.pid, is_error)
            for path, is_error in ((out, False), (err, True))
        ]
        self.wake()

    def finish(self, worker: Worker) -> None:
        """The worker is dead: its last lines are handed on now; empty files are removed."""
        for file in self._files.pop(worker.worker_id, ()):
            for name, lines in file.read_end():
                self._send(file, name, lines)
            self._watch.remove(file.path)
            if not file.offset:
                _remove(file.path)

    def take(self, job_id: bytes) -> list[LogBatch]:
        """What a job's workers have written and nobody has read yet, unfinished lines included: its driver leaves."""
        return [
            self._batch(file, name, lines)
            for files in self._files.values()
            for file in files
            if file.job_id == job_id
            for name, lines in file.read_end()
        ]

    def wake(self) -> None:
        """Something was written, or soon will be: look often again."""
        self._quiet = 0
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_QUICK_S, self._poll)

    def close(self) -> None:
        """Stops following."""
        if self._timer is not None:
            self._timer.cancel()
        self._watch.close()

    def _poll(self) -> None:
        self._timer = None
        if not self._files:
            return
        is_quiet = self._quiet >= _QUIET_ROUNDS
        is_watched = is_quiet and all(self._watch.add(file.path) for file in self._all_files())
        found = False
        for file in self._all_files():
            found |= self._read(file)
        self._quiet = 0 if found else self._quiet + 1
        if is_watched and not found:
            return  # the next line wakes us
        delay = _SLOW_S if is_quiet else _QUICK_S
        self._timer = asyncio.get_running_loop().call_later(delay, self._poll)

    def _all_files(self) -> list[LogFile]:
        return [file for files in self._files.values() for file in files]

    def _read(self, file: LogFile) -> bool:
        try:
            if os.stat(file.path).st_size <= file.offset:
                return False
        except FileNotFoundError:  # the worker has not opened it yet
            return False
        _, groups = file.read()
        for name, lines in groups:
            self._send(file, name, lines)
        return True

    def _send(self, file: LogFile, name: str, lines: list[str]) -> None:
        self._deliver(self._batch(file, name, lines))

    def _batch(self, file: LogFile, name: str, lines: list[str]) -> LogBatch:
        return LogBatch(file.job_id, self._node_id, self._host, file.pid, name, file.is_error_stream, lines)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
