"""The metric of waiting requests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime.serve._caller import measures


def test_it_follows_a_queue_until_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[float, Any]] = []
    monkeypatch.setattr(measures, "RECORD_S", 0.001)
    monkeypatch.setattr(measures.metrics.Gauge, "set", lambda _, value, tags: found.append((value, tags)))

    class Queue:
        app, deployment = "a", "d"
        left = 3

        @property
        def waiting(self) -> int:
            self.left -= 1
            return self.left

    async def test() -> None:
        recorder = measures.QueueMeasures(asyncio.get_running_loop(), "me")
        recorder.changed(Queue())
        async with asyncio.timeout(10):
            while len(found) < 3:  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0.001)
        assert recorder._timer is None
        recorder.close()

    asyncio.run(test())
    assert [value for value, _ in found] == [2, 1, 0]
    assert found[0][1] == {"application": "a", "deployment": "d", "handle": "me"}
