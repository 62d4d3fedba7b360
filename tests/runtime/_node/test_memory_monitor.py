"""What a node that runs low on memory ends, and in which order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime._core.memory_policy import Holder
from runtime._core.workers import Worker
from runtime._node.memory_monitor import MemoryMonitor


def test_what_no_work_needs_goes_before_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "1")
    worker = Worker(b"w", 1, (b"job", ""))
    unneeded = [1, 2]
    left_when_ended = []

    async def scenario() -> None:
        ended = asyncio.Event()

        def end(victim: Worker, reason: str, _retry: bool) -> None:
            assert victim is worker
            assert "running low on memory" in reason
            left_when_ended.append(len(unneeded))
            ended.set()

        def give_back() -> bool:
            return bool(unneeded and unneeded.pop())

        holder: Any = Holder(worker, b"owner", True, 0.0)
        monitor = MemoryMonitor(lambda: [holder], end, give_back, lambda: 1 << 60)
        monitor.wake()
        async with asyncio.timeout(60):
            await ended.wait()
        monitor.close()

    asyncio.run(scenario())
    assert left_when_ended == [0]
