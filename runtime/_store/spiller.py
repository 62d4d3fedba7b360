"""Moves objects from a node's memory to its disk: when, which, and on which threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from runtime._core.store_index import StoredObject, StoreIndex

from .arena import Arena
from .disk import FULL_FROM, SpillDirectory
from .spill_report import SpillReport

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

log = logging.getLogger(__name__)
THREADS = 4
SPILL_THRESHOLD = 0.8
RETRY_S = 1.0
"""After a failure to write, how long nothing more is spilled."""


class SpillSettings(msgspec.Struct, frozen=True):
    """Attributes:
    directory: where files go; made when the first one does.
    threshold: share of the memory from which on objects that nobody uses are written to disk ahead of need.
    enabled: whether objects in memory are written to disk at all. What finds no memory goes there in any case.
    grace_s: how long an object that finds none waits for readers to be done with others. One that waited in vain is
        enough: those after it do not wait, until one gets memory.
    disk_full_from: share of the file system above which nothing is written.
    report_bytes: see `SpillReport`.
    """

    directory: str
    threshold: float = SPILL_THRESHOLD
    enabled: bool = True
    grace_s: float = 1.0
    disk_full_from: float = FULL_FROM
    report_bytes: int = 0


class Spiller:
    """The disk side of one store. Lives on the agent's loop; its threads only copy bytes.

    Args:
        on_room: called when memory may have become free.
        on_report: called with a line for the drivers.
    """

    def __init__(
        self,
        index: StoreIndex,
        arena: Arena,
        settings: SpillSettings,
        on_room: Callable[[], None],
        on_report: Callable[[str], None],
    ) -> None:
        self._index = index
        self._arena = arena
        self._settings = settings
        self._on_room = on_room
        self._on_report = on_report
        self._report = SpillReport(settings.report_bytes)
        self._disk = SpillDirectory(settings.directory, settings.disk_full_from)
        self._above = int(index.allocator.capacity * settings.threshold)
        self._threads: ThreadPoolExecutor | None = None
        self._running: dict[asyncio.Future[Any], memoryview] = {}
        self._not_before_s = 0.0
        self._has_waited_in_vain = False
        self._closed = False

    def close(self) -> None:
        """Waits for what is being copied and removes every file."""
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
            for data in self._running.values():
                data.release()
            self._disk.close()

    def spill_above_threshold(self) -> None:
        """Begins to write what nobody uses, if memory is that full."""
        excess = self._index.kept_bytes - self._above
        if excess > 0:
            self._spill(excess)

    async def wait_for_room(
        self, done: asyncio.Future[Any], size_bytes: int, wanted_bytes: Callable[[], int]
    ) -> None:
        """Returns when `done` is, or when no memory can be had for it. The caller sets a deadline.

        Args:
            wanted_bytes: how much all who wait need together.
        """
        if size_bytes > self._index.allocator.capacity:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + (0.0 if self._has_waited_in_vain else self._settings.grace_s)
        while not done.done():
            self._spill(wanted_bytes() - self._index.spilling_bytes)
            if self._running:
                await asyncio.wait({done, *self._running}, return_when=asyncio.FIRST_COMPLETED)
            elif loop.time() < until:
                # Readers may let go meanwhile: what they unpin is tried at once, and can be spilled soon.
                await asyncio.wait({done}, timeout=min(0.02, until - loop.time()))
            else:
                self._has_waited_in_vain = True
                return
        self._has_waited_in_vain = False

    async def reserve(self, name: str, size_bytes: int) -> str:
        """A file for an object that there is no memory for.

        Raises:
            OSError: the disk has no room.
        """
        reserving = self._in_thread(self._disk.reserve, name, size_bytes)
        try:
            path: str = await asyncio.shield(reserving)
        except asyncio.CancelledError:
            reserving.add_done_callback(self._not_wanted)
            raise
        return path

    async def read(self, path: str, offset: int, length: int) -> bytes:
        """Part of a file.

        Raises:
            OSError: it is gone.
        """
        data: bytes = await self._in_thread(self._disk.read, path, offset, length)
        return data

    async def write_at(self, path: str, offset: int, data: bytes | memoryview) -> None:
        """Fills part of a file.

        Raises:
            OSError: it is gone.
        """
        await self._in_thread(self._disk.write_at, path, offset, data)

    def delete(self, path: str) -> None:
        """Nobody needs this file any more."""
        if not self._closed:
            self._disk.delete(path)

    def _not_wanted(self, reserving: asyncio.Future[str]) -> None:
        if not reserving.cancelled() and reserving.exception() is None:
            self.delete(reserving.result())

    def _spill(self, size_bytes: int) -> None:
        if not self._settings.enabled or self._closed or size_bytes <= 0:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._not_before_s:
            return
        for entry in self._index.take_spillable(size_bytes):
            assert entry.offset is not None
            data = self._arena.view(entry.offset, entry.size_bytes)
            write = self._in_thread(self._disk.write, entry.object_id.hex(), data)
            self._running[write] = data
            self._report.begun(loop.time())
            write.add_done_callback(partial(self._written, entry))

    def _written(self, entry: StoredObject, done: asyncio.Future[str]) -> None:
        self._running.pop(done).release()
        now = asyncio.get_running_loop().time()
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        line = self._report.ended(entry.size_bytes if error is None else 0, now)
        if line and not self._closed:
            self._on_report(line)
        if error is None:
            self._index.spilled(entry, done.result())
        else:
            self._index.not_spilled(entry)
            if not self._closed:
                log.warning("object %s was not spilled: %s", entry.object_id.hex(), error)
                self._not_before_s = now + RETRY_S
        if not self._closed:
            self._on_room()

    def _in_thread(self, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor  # loaded when it is used

            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="spill")
        return asyncio.get_running_loop().run_in_executor(self._threads, work, *args)
