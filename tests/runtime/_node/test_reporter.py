from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import cast

from runtime._clients.control import ControlClient
from runtime._core.ledger import Ledger
from runtime._core.nodes import HEARTBEAT_TIMEOUT_S
from runtime._node.reporter import FREED_INTERVAL_S, HEARTBEAT_S, MIN_INTERVAL_S, Reporter
from runtime._wire.messages.base import Message
from tests.sim.world import run_virtual


class Control:
    """Notes when something was sent."""

    def __init__(self) -> None:
        self.sent_s: list[float] = []

    def send(self, message: Message, keep: bool = True) -> None:
        self.sent_s.append(asyncio.get_running_loop().time())


def beats(for_s: float, change_every_s: float = 0.0, is_freed: bool = False) -> list[float]:
    """When reports go out."""
    control, ledger = Control(), Ledger({"CPU": 40_000})

    async def main() -> None:
        client = cast(ControlClient, control)
        reporter = Reporter(b"n", client, ledger, lambda: False, list, list, str, lambda: 0, lambda: None)
        reporter.start()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + for_s
        while loop.time() < end_s:
            await asyncio.sleep(change_every_s or for_s)
            if change_every_s:
                ledger.allocate({"CPU": 1})
                if is_freed:
                    reporter.freed()
                else:
                    reporter.changed()
        reporter.close()

    run_virtual(main())
    return control.sent_s


def gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


def test_who_has_nothing_to_say_beats_often_enough() -> None:
    assert all(abs(gap - HEARTBEAT_S) < 0.01 for gap in gaps(beats(30.5)))
    assert 3 * HEARTBEAT_S < HEARTBEAT_TIMEOUT_S


def test_a_change_is_told_at_once() -> None:
    assert max(gaps(beats(10.0, change_every_s=0.3))) < 0.31


def test_that_an_actor_has_ended_is_told_sooner() -> None:
    often = gaps(beats(1.0, change_every_s=0.0004))
    assert min(often) > MIN_INTERVAL_S - 0.001
    soon = gaps(beats(1.0, change_every_s=0.0004, is_freed=True))
    assert max(soon[1:-1]) < FREED_INTERVAL_S + 0.001
    assert min(soon[1:-1]) > FREED_INTERVAL_S - 0.001
