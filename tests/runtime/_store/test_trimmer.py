"""Memory goes back to the system when the store is left alone, and what lives in it stays as it is."""

from __future__ import annotations

import asyncio
import os

import pytest

from runtime._core.allocator import Allocator
from runtime._store import trimmer
from runtime._store.arena import Arena
from runtime._store.trimmer import Trimmer
from tests.polling import eventually

MIB = 1 << 20


def resident_bytes(arena: Arena) -> int:
    return os.fstat(arena.fd).st_blocks * 512


def filled(allocator: Allocator, arena: Arena, size: int, byte: bytes) -> int:
    offset = allocator.allocate(size)
    assert offset is not None
    arena.write(offset, byte * size)
    return offset


def test_what_is_free_goes_back_and_the_rest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimmer, "STEP_BYTES", MIB)

    async def main() -> None:
        allocator, arena = Allocator(64 * MIB), Arena(64 * MIB)
        subject = Trimmer(allocator, arena, idle_s=0.01)
        try:
            offsets = [filled(allocator, arena, 3 * MIB, b"x") for _ in range(4)]
            small = filled(allocator, arena, 100, b"y")
            assert resident_bytes(arena) >= 12 * MIB
            allocator.free(offsets[0])
            allocator.free(offsets[2])
            subject.wake()
            assert await asyncio.to_thread(eventually, lambda: resident_bytes(arena) < 7 * MIB)
            assert bytes(arena.view(offsets[1], 3 * MIB)) == b"x" * 3 * MIB
            assert bytes(arena.view(offsets[3], 3 * MIB)) == b"x" * 3 * MIB
            assert bytes(arena.view(small, 100)) == b"y" * 100
            assert filled(allocator, arena, 3 * MIB, b"z") in (offsets[0], offsets[2])
        finally:
            subject.close()
            arena.close()

    asyncio.run(main())


def test_nothing_goes_back_while_the_store_is_used() -> None:
    async def main() -> None:
        allocator, arena = Allocator(8 * MIB), Arena(8 * MIB)
        subject = Trimmer(allocator, arena, idle_s=3600.0)
        try:
            allocator.free(filled(allocator, arena, 4 * MIB, b"x"))
            subject.wake()
            subject._look()
            assert resident_bytes(arena) >= 4 * MIB
        finally:
            subject.close()
            arena.close()

    asyncio.run(main())
