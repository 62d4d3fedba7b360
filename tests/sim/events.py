"""An event heap, a virtual clock and one source of chance: one seed gives one run."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs

from runtime._wire.messages.base import WorkerAddress

MAX_EVENTS = 200_000
TRACE_LENGTH = 400


class Violation(AssertionError):
    """An invariant does not hold."""


class Events:
    """Time, chance, and what happens next."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 1000.0
        self.failure: BaseException | None = None
        self.trace: deque[tuple[Any, ...]] = deque(maxlen=TRACE_LENGTH)
        self.events = 0
        self.after_event: Callable[[], None] = lambda: None
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        """Runs `action` after a while."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now + delay_s, self._sequence, action))

    def note(self, *what: Any) -> None:
        """Something for the trace that a failure shows."""
        self.trace.append((round(self.now - 1000.0, 6), *what))

    def story(self) -> str:
        """The last events, one per line."""
        return "\n".join(" ".join(map(_shown, line)) for line in self.trace)

    def fail(self, message: str) -> None:
        """An invariant broke; the run ends after this event, whoever swallows the exception.

        Raises:
            Violation: always.
        """
        violation = Violation(message)
        if self.failure is None:
            self.failure = violation
        raise violation

    def run(self) -> None:
        """Until nothing will ever happen again.

        Raises:
            BaseException: the first failure.
        """
        while self._heap:
            self.now, _, action = heapq.heappop(self._heap)
            self.events += 1
            if self.events > MAX_EVENTS:
                raise Violation(f"{MAX_EVENTS} events: this never comes to rest")
            action()
            if self.failure is not None:
                raise self.failure
            self.after_event()

    def advance(self, until: float) -> bool:
        """Runs the next event if it is due by then; else the time is that, and the answer False."""
        if not self._heap or self._heap[0][0] > until:
            self.now = max(self.now, until)
            return False
        self.now, _, action = heapq.heappop(self._heap)
        self.events += 1
        if self.events > MAX_EVENTS:
            raise Violation(f"{MAX_EVENTS} events: this never comes to rest")
        action()
        self.after_event()
        return True

    @property
    def at_rest(self) -> bool:
        """Whether nothing will happen any more."""
        return not self._heap

    def delay_s(self, scale_s: float) -> float:
        """A random delay, sometimes much longer than usual."""
        return self.rng.random() * scale_s * (20 if self.rng.random() < 0.05 else 1)


def _shown(what: Any) -> str:
    """Ids by their first bytes, and no pickles: what one reads a trace for."""
    if isinstance(what, bytes):
        return what.hex()[:16] + what.hex()[48:50] if len(what) == 28 else what.hex()[:16]
    if isinstance(what, WorkerAddress):
        return what.worker_id.rstrip(b".").decode()
    if isinstance(what, Struct):
        shown = [
            f"{name}={_shown(value)}"
            for name, value in structs.asdict(what).items()
            if value and name not in ("data", "buffers", "key", "pickled", "runtime_env")
        ]
        return f"{type(what).__name__}({', '.join(shown)})"
    if isinstance(what, list | tuple):
        return f"[{', '.join(map(_shown, what))}]"
    return str(what)
