from __future__ import annotations

import asyncio

import pytest

from runtime._control.journal import Journal
from runtime._control.storage import StorageError
from runtime._control.storage.memory import MemoryStorage
from tests.sim.world import run_virtual


class CountingStorage(MemoryStorage):
    """Counts commits, and fails those it is told to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0
        self.failures = 0
        self._written = False

    def put(self, table: str, key: bytes, value: bytes) -> None:
        super().put(table, key, value)
        self._written = True

    @property
    def dirty(self) -> bool:
        return self._written

    def commit(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StorageError("disk full")
        self.commits += 1
        self._written = False


def test_writes_of_one_turn_are_one_commit() -> None:
    async def main() -> None:
        storage = CountingStorage()
        journal = Journal(storage)

        async def write(number: int) -> None:
            journal.put("t", bytes([number]), b"")
            await journal.durable()

        await asyncio.gather(*(write(number) for number in range(50)))
        assert storage.commits == 1

    run_virtual(main())


def test_nothing_to_wait_for_without_writes() -> None:
    async def main() -> None:
        storage = CountingStorage()
        await Journal(storage).durable()
        assert storage.commits == 0

    run_virtual(main())


def test_a_failed_commit_is_told_and_tried_again() -> None:
    async def main() -> None:
        storage = CountingStorage()
        storage.failures = 2
        journal = Journal(storage)
        journal.put("t", b"k", b"v")
        with pytest.raises(StorageError, match="disk full"):
            await journal.durable()
        await asyncio.sleep(5)
        assert storage.commits == 1
        await journal.durable()

    run_virtual(main())


def test_a_closed_journal_writes_nothing() -> None:
    async def main() -> None:
        storage = CountingStorage()
        journal = Journal(storage)
        journal.put("t", b"k", b"v")
        journal.close()
        journal.put("t", b"late", b"v")
        assert not journal.delete("t", b"k")
        assert storage.keys("t") == [b"k"]
        assert storage.commits == 1
        await asyncio.sleep(1)

    run_virtual(main())
