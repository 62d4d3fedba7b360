"""Writes of one turn of the event loop go to the storage together. Replies that depend on them wait here until they
are safe.
"""

from __future__ import annotations

import asyncio
import logging

from runtime._control.storage import Storage, StorageError

log = logging.getLogger(__name__)

RETRY_S = 1.0


class Journal:
    """Group commit over a `Storage`."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._scheduled = False
        self._closed = False
        self._waiting: list[asyncio.Future[None]] = []

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """Writes; committed at the end of this loop turn. Ignored once closed."""
        if not self._closed:
            self.storage.put(table, key, value)
            self._schedule()

    def delete(self, table: str, key: bytes) -> bool:
        """Removes; committed at the end of this loop turn. Ignored once closed."""
        if self._closed:
            return False
        deleted = self.storage.delete(table, key)
        self._schedule()
        return deleted

    async def durable(self) -> None:
        """Returns when everything written so far is committed.

        Raises:
            StorageError: it could not be; the write is tried again later, but must not be acknowledged.
        """
        if self.storage.dirty:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            self._schedule()
            await future  # resolved by the commit of this loop turn, whether it succeeds or not

    def close(self) -> None:
        """Commits and closes the storage; timers that still fire write nothing any more."""
        self._commit()
        self._closed = True
        self.storage.close()

    def _schedule(self) -> None:
        if not self._scheduled and self.storage.dirty:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._commit)

    def _commit(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        waiting, self._waiting = self._waiting, []
        try:
            self.storage.commit()
        except StorageError as error:
            log.error("commit failed: %s", error)
            for future in waiting:
                if not future.done():
                    future.set_exception(StorageError(str(error)))
            self._scheduled = True
            asyncio.get_running_loop().call_later(RETRY_S, self._commit)
            return
        for future in waiting:
            if not future.done():
                future.set_result(None)
