"""A world without wall-clock time: the real asyncio code runs on a loop whose clock jumps to the next
timer, over links that delay every message by a seeded amount. The same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from runtime._transport.channel import Handler, LoopbackChannel

T = TypeVar("T")
START_S = 1000.0


class Stalled(Exception):
    """Everybody waits and no timer is set: a wait without a deadline that nothing will end."""


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Never blocks: time that a real selector would wait for passes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START_S

    def select(self, timeout: float | None = None) -> list[Any]:
        events: list[Any] = super().select(0)
        if not events:
            if timeout is None:
                raise Stalled("nothing will ever happen again")
            self.now += max(0.0, timeout)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time. `after_turn` runs after each turn of the loop."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        self.after_turn: Callable[[], None] | None = None
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        check, self.after_turn = self.after_turn, None
        if check is not None:
            check()
            self.after_turn = self.after_turn or check  # not after a failure: the clean-up runs turns too


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class SimLink(LoopbackChannel):
    """One end of a link whose messages arrive late, in order, and not at all once it is cut."""

    def __init__(self, handler: Handler | None = None, name: str = "") -> None:
        super().__init__(handler, name)
        self._rng: random.Random | None = None
        self._longest_s = 0.0
        self._last_s = 0.0

    @classmethod
    def delayed(
        cls, left: Handler | None, right: Handler | None, rng: random.Random, longest_s: float
    ) -> tuple[SimLink, SimLink]:
        """A pair whose messages take up to `longest_s` each."""
        a, b = cls(left, "left"), cls(right, "right")
        a.peer, b.peer = b, a
        for end in (a, b):
            end._rng, end._longest_s = rng, longest_s
        return a, b

    def _write(self, payload: bytes, correlation: int) -> None:
        if self._rng is None or not self._longest_s:
            super()._write(payload, correlation)
            return
        loop = asyncio.get_running_loop()
        # The smallest step keeps messages in order: timers of the same moment may fire in any.
        self._last_s = max(self._last_s + 1e-6, loop.time() + self._rng.random() * self._longest_s)
        loop.call_at(self._last_s, self._deliver, correlation, payload)
