"""Follows the output files of this node's workers and hands their lines on, a batch at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from runtime._core.workers import Worker
from runtime._wire.messages.control import LogBatch
from runtime._wire.messages.node import ReopenOutput

from .file_watch import FileWatch
from .log_file import Groups, Rotation, Stream

log = logging.getLogger(__name__)
_QUICK_S = 0.1
_SLOW_S = 0.5
_QUIET_ROUNDS = 20
_TOGETHER = 32
"""How many streams are read before their lines are handed on: each gives 256 KiB at most."""


class _Followed(msgspec.Struct, eq=False):
    """A worker's streams. `last_words`: its worker is dead, and this follows its last lines."""

    worker: Worker
    streams: list[Stream]
    has_ended: bool = False
    last_words: LogBatch | None = None


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
        self._rotation = Rotation.of_environment()
        self._followed: dict[bytes, _Followed] = {}
        self._reading = asyncio.Lock()  # one thread at a time looks at the streams
        self._timer: asyncio.TimerHandle | None = None
        self._round: asyncio.Task[None] | None = None
        self._quiet = 0
        self._watch = FileWatch(self.wake)

    def follow(self, worker: Worker, out: str, err: str) -> None:
        """A worker has opened its files. Repeating it does nothing."""
        if worker.worker_id in self._followed:
            return
        self._followed[worker.worker_id] = _Followed(
            worker,
            [
                Stream(path, worker.job_id, worker.pid, is_error, self._rotation)
                for path, is_error in ((out, False), (err, True))
            ],
        )
        self.wake()

    def finish(self, worker: Worker, last_words: LogBatch | None = None) -> None:
        """The worker is dead: its last lines are handed on, and then `last_words`. Empty files are removed."""
        followed = self._followed.get(worker.worker_id)
        if followed is not None:
            followed.has_ended, followed.last_words = True, last_words
            self._quiet = 0
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._look_after(0.0)
        elif last_words is not None:
            self._deliver(last_words)

    async def take(self, job_id: bytes) -> list[LogBatch]:
        """What a job's workers have written and nobody has read yet, unfinished lines included: its driver leaves."""
        async with self._reading:
            mine = [followed for followed in self._followed.values() if followed.worker.job_id == job_id]
            streams = [stream for followed in mine for stream in followed.streams]
            found = await asyncio.to_thread(lambda: [stream.read_end() for stream in streams])
            batches = [
                batch
                for stream, groups in zip(streams, found, strict=True)
                for batch in self._batches(stream, groups)
            ]
            for followed in mine:
                if followed.has_ended and followed.last_words is not None:
                    batches.append(followed.last_words)
                    followed.last_words = None
            return batches

    def wake(self) -> None:
        """Something was written, or soon will be: look often again."""
        self._quiet = 0
        self._look_after(_QUICK_S)

    async def close(self) -> None:
        """Stops following."""
        if self._timer is not None:
            self._timer.cancel()
        if self._round is not None:
            self._round.cancel()
            await asyncio.wait([self._round])
        self._watch.close()

    def _look_after(self, delay_s: float) -> None:
        if self._timer is None and self._round is None:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._followed:
            self._round = asyncio.get_running_loop().create_task(self._look())
            self._round.add_done_callback(self._looked)

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._round = None
        if task.cancelled():
            return
        if task.exception() is not None:
            log.error("the output of workers could not be read", exc_info=task.exception())
            self._look_after(_SLOW_S)
        elif self._quiet <= _QUIET_ROUNDS:
            self._look_after(_QUICK_S)
        else:
            files = [file.path for stream in self._streams() for file in stream.files]
            is_watched = all(self._watch.add(path) for path in files)
            # Once more: for what came before they were watched. Then the next line wakes us.
            if not is_watched or self._quiet == _QUIET_ROUNDS + 1:
                self._look_after(_SLOW_S)

    async def _look(self) -> None:
        """Reads what is new everywhere."""
        self._quiet += 1
        async with self._reading:
            everyone = list(self._followed.values())
            for start in range(0, len(everyone), _TOGETHER // 2):
                some = everyone[start : start + _TOGETHER // 2]
                ended = [followed.has_ended for followed in some]
                found = await asyncio.to_thread(_read, some)
                for followed, has_ended, (is_behind, read) in zip(some, ended, found, strict=True):
                    self._hand_on(followed, read)
                    if has_ended and not is_behind:
                        await self._forget(followed)

    def _hand_on(self, followed: _Followed, read: list[Groups]) -> None:
        for stream, groups in zip(followed.streams, read, strict=True):
            if groups:
                self._quiet = 0
            for batch in self._batches(stream, groups):
                self._deliver(batch)
            if stream.wants_reopening:
                self._quiet = 0
                self._watch.remove(stream.path)  # it is another file now
                if followed.worker.channel is not None and not followed.has_ended:
                    followed.worker.channel.send(ReopenOutput(stream.path, stream.is_error_stream))

    async def _forget(self, followed: _Followed) -> None:
        """Everything was read but for unfinished lines."""
        rest = await asyncio.to_thread(_end, followed)
        for stream, groups in zip(followed.streams, rest, strict=True):
            for batch in self._batches(stream, groups):
                self._deliver(batch)
            for file in stream.files:
                self._watch.remove(file.path)
        if followed.last_words is not None:
            self._deliver(followed.last_words)
        self._followed.pop(followed.worker.worker_id, None)

    def _streams(self) -> list[Stream]:
        return [stream for followed in self._followed.values() for stream in followed.streams]

    def _batches(self, stream: Stream, groups: Groups) -> list[LogBatch]:
        return [
            LogBatch(
                stream.job_id, self._node_id, self._host, stream.pid, name, stream.is_error_stream, lines
            )
            for name, lines in groups
        ]


def _read(some: list[_Followed]) -> list[tuple[bool, list[Groups]]]:
    """For each worker: whether there is more, and what its streams gave."""
    found = []
    for followed in some:
        read = [stream.read() for stream in followed.streams]
        found.append((any(is_behind for is_behind, _ in read), [groups for _, groups in read]))
    return found


def _end(followed: _Followed) -> list[Groups]:
    rest = [stream.read_end() for stream in followed.streams]
    for stream in followed.streams:
        stream.remove_if_empty()
    return rest
