"""Jobs that wait until the head has room for their entrypoints: in order, and across restarts of the head."""

from __future__ import annotations

import os

import msgspec

from clusterctl.jobs.records import JobRecord, JobRequest
from runtime._clients.control import ControlClient
from runtime._node.config import memory_bytes
from runtime._wire.messages.control import KvDelete, KvGet, KvPut

REQUESTS = "job_requests"
_LEAST = 4
_PER_CPU = 8
_BYTES_EACH = 256 * 2**20


def default_limit() -> int:
    """How many jobs run at once on a head whose spec does not say: by its CPUs and its memory."""
    return max(_LEAST, min(_PER_CPU * (os.cpu_count() or 1), memory_bytes() // _BYTES_EACH))


class JobQueue:
    """What waits and what runs. Belongs to the event loop.

    Attributes:
        limit: how many jobs run at once.
    """

    def __init__(self, control: ControlClient, limit: int) -> None:
        self._control = control
        self.limit = limit
        self._waiting: dict[str, JobRequest] = {}
        self._running: set[str] = set()
        self._is_closed = False

    async def keep(self, name: str, request: JobRequest) -> None:
        """Writes a request down, so that a restarted head has it.

        Raises:
            CallError: the control store does not answer.
        """
        await self._control.call(KvPut(REQUESTS, name.encode(), msgspec.json.encode(request)))

    async def kept(self, name: str) -> JobRequest | None:
        """The request of a job that had not begun when an earlier head ended."""
        value = (await self._control.call(KvGet(REQUESTS, name.encode()))).value
        return None if value is None else msgspec.json.decode(value, type=JobRequest)

    async def forget(self, name: str) -> None:
        """The job begins, or never will."""
        await self._control.call(KvDelete(REQUESTS, name.encode()))

    def add(self, name: str, request: JobRequest) -> None:
        """Puts a job at the end of the line."""
        self._waiting[name] = request

    def remove(self, name: str) -> bool:
        """Takes a job out of the line; whether it was there."""
        return self._waiting.pop(name, None) is not None

    def next(self) -> tuple[str, JobRequest] | None:
        """The job that may begin now; it counts as running until `ended`."""
        if self._is_closed or not self._waiting or len(self._running) >= self.limit:
            return None
        name = next(iter(self._waiting))
        self._running.add(name)
        return name, self._waiting.pop(name)

    def ended(self, name: str) -> None:
        """The job makes room."""
        self._running.discard(name)

    def close(self) -> None:
        """Lets no further job begin, because the head ends. What waits goes on with the next head."""
        self._is_closed = True

    def shown(self, record: JobRecord) -> JobRecord:
        """The record, which says why the job waits, if it does, and its place."""
        if record.submission_id not in self._waiting:
            return record
        place = [*self._waiting].index(record.submission_id) + 1
        words = f"waiting: number {place} in line; {self.limit} jobs may run at once (max_concurrent_jobs)"
        return msgspec.structs.replace(record, message=words)
