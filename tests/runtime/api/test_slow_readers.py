"""A process that reads slowly, or not at all: what is meant for it waits with its sender, within bounds."""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from runtime._process.core_worker import current
from runtime._transport import connection
from tests.polling import eventually, stays
from tests.stalls import suspend
from tests.under_test import OWN, ray

pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.skipif(not OWN, reason="it lowers this engine's own bounds"),
]
CONGESTED_BYTES = 1 << 20
MESSAGE_BYTES = 50_000


@ray.remote
class Listener:
    def __init__(self) -> None:
        self.heard: list[int] = []

    def pid(self) -> int:
        return os.getpid()

    def hear(self, number: int, _load: bytes) -> None:
        self.heard.append(number)

    def all(self) -> list[int]:
        return self.heard


def test_calls_of_a_process_that_does_not_read_wait_here_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONGESTED_BYTES", CONGESTED_BYTES)
    listener = Listener.remote()
    pid = ray.get(listener.pid.remote())
    suspend(pid)
    try:
        refs = [listener.hear.remote(number, bytes(MESSAGE_BYTES)) for number in range(400)]
        unsent = max(len(peer._out) for peer in current().links.peers())
    finally:
        os.kill(pid, signal.SIGCONT)
    assert CONGESTED_BYTES < unsent < CONGESTED_BYTES + 2 * MESSAGE_BYTES
    ray.get(refs, timeout=60)
    assert ray.get(listener.all.remote(), timeout=60) == list(range(400))


@pytest.mark.parametrize("kind", ["task", "async actor"])
def test_a_generator_waits_for_a_driver_that_does_not_read(kind: str, tmp_path: pathlib.Path) -> None:
    def items() -> Iterator[bytes]:
        from runtime._transport import connection

        connection.CONGESTED_BYTES = CONGESTED_BYTES
        for number in range(400):
            (tmp_path / "yielded").write_text(str(number))
            yield number.to_bytes(4, "big") + bytes(MESSAGE_BYTES)

    class Async:
        async def items(self) -> Any:
            for item in items():
                yield item

    def yielded() -> int:
        path = tmp_path / "yielded"
        return int(path.read_text() or 0) if path.exists() else -1

    core = current()
    generator = (
        ray.remote(items).remote()
        if kind == "task"
        else ray.remote(Async).remote().items.options(num_returns="streaming").remote()
    )
    first = ray.get(next(generator), timeout=60)
    with core.lock:  # this process reads nothing
        before = -1

        def stands_still() -> bool:
            nonlocal before
            before = yielded()
            return stays(lambda: yielded() == before)

        assert eventually(stands_still)
        assert before < 399
    rest = [ray.get(ref, timeout=60) for ref in generator]
    numbers = [int.from_bytes(item[:4], "big") for item in (first, *rest)]
    assert numbers == list(range(400))
