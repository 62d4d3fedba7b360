"""The loop of every controller: takes events, steps the controller, and has its effects carried out.

Timers, requests and limits of waits are the loop's own; everything else is the engine's.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from .controller import (
    Begin,
    Controller,
    Effect,
    Event,
    Key,
    Overdue,
    Reply,
    Requested,
    Sleep,
    Stop,
    TimerFired,
    Wait,
)

log = logging.getLogger(__name__)
LOOK_S = 1.0
"""How often at most the controller is asked what it waits for."""
STALL_S = 30.0
"""After so long without an event other than timers, what the controller waits for is logged; then after twice as long,
and so on."""
REPORTED = 10
"""Waits in one report."""


class Engine(Protocol):
    """What carries effects out and tells what happens: the cluster, or a simulation."""

    def now(self) -> float:
        """Monotonic time in seconds."""

    def carry_out(self, effect: Effect) -> None:
        """Begins what the effect says. An effect that cannot even begin ends with an event, as one that fails later."""

    def take(self, timeout_s: float | None) -> Sequence[Event]:
        """Waits for events; none after `timeout_s`, or after `interrupt`."""

    def resolve(self, value: Any) -> Any:
        """The value of a reply or of the end, with a reference in the place of a `ResultOf`, also
        of one in a tuple."""

    def interrupt(self) -> None:
        """Ends a `take` that waits. From any thread."""

    def close(self) -> None:
        """Tells nothing any more, and lets go of all results and actors."""


class Ended(Exception):
    """The loop has ended before it answered."""


class Loop:
    """Runs one controller. `run` belongs to one thread; `request` may be called from any.

    Args:
        name: of the controller, for reports.
        stall_s: see `STALL_S`.
    """

    def __init__(
        self, controller: Controller, engine: Engine, name: str = "", stall_s: float = STALL_S
    ) -> None:
        self._controller = controller
        self._engine = engine
        self._name = name or type(controller).__name__
        self._stall_s = stall_s
        self._lock = threading.Lock()  # guards the requests
        self._asked: deque[Requested] = deque()
        self._futures: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._has_ended = False
        self._timers: dict[Key, int] = {}  # the sequence number of the one that counts
        self._due: list[tuple[float, int, Key]] = []
        self._sequence = itertools.count()
        self._end: Stop | None = None
        self._look_at = 0.0
        self._looked_s = 0.0
        self._event_s = 0.0  # when the last event came that was no timer
        self._report_after_s = stall_s
        self._overdue: set[Wait] = set()  # those that were told

    def request(self, what: Any) -> Future[Any]:
        """Asks something of the controller: `Requested`. The future gets the answer, or `Ended`."""
        future: Future[Any] = Future()
        with self._lock:
            if not self._has_ended:
                number = next(self._numbers)
                self._futures[number] = future
                self._asked.append(Requested(number, what))
            else:
                future.set_exception(Ended(f"{self._name} has ended"))
        self._engine.interrupt()
        return future

    def run(self) -> Any:
        """Runs until the controller wants to stop. Returns the value of `Stop`.

        Raises:
            BaseException: the error of `Stop`, or of the controller itself.
        """
        engine = self._engine
        try:
            self._event_s = self._look_at = engine.now()
            self._step(Begin())
            while self._end is None:
                for event in self._next_events():
                    self._step(event)
                    if self._end is not None:
                        break
            end = self._end
            if end.error is not None:
                raise end.error
            return engine.resolve(end.value)
        finally:
            self._close()

    def waiting_for(self) -> Sequence[Wait]:
        """What the controller waits for. In the loop's thread."""
        return self._controller.waiting_for()

    # ------------------------------------------------------------ events

    def _next_events(self) -> Sequence[Event]:
        engine = self._engine
        now = engine.now()
        if now >= self._look_at:
            late = self._look(now)
            if late:
                return late
        until = min(self._look_at, self._due[0][0] if self._due else self._look_at)
        events: list[Event] = []
        if not self._asked:
            events += engine.take(max(0.0, until - now))
        while self._asked:
            events.append(self._asked.popleft())
        now = engine.now()
        if events:
            self._event_s = now
            self._report_after_s = self._stall_s
        events += self._fired(now)
        if events:
            self._look_at = min(self._look_at, max(now, self._looked_s + LOOK_S))
        return events

    def _fired(self, now: float) -> list[Event]:
        fired: list[Event] = []
        while self._due and self._due[0][0] <= now:
            _, sequence, key = heapq.heappop(self._due)
            if self._timers.get(key) == sequence:
                del self._timers[key]
                fired.append(TimerFired(key))
        return fired

    def _step(self, event: Event) -> None:
        now = self._engine.now()
        for effect in self._controller.step(event, now):
            if isinstance(effect, Sleep):
                self._set_timer(effect, now)
            elif isinstance(effect, Reply):
                self._reply(effect)
            elif isinstance(effect, Stop):
                self._end = effect
            else:
                self._engine.carry_out(effect)

    def _set_timer(self, effect: Sleep, now: float) -> None:
        self._timers.pop(effect.key, None)
        if effect.seconds >= 0:
            self._timers[effect.key] = sequence = next(self._sequence)
            heapq.heappush(self._due, (now + effect.seconds, sequence, effect.key))

    def _reply(self, effect: Reply) -> None:
        with self._lock:
            future = self._futures.pop(effect.number)
        if not future.set_running_or_notify_cancel():
            return
        if effect.error is not None:
            future.set_exception(effect.error)
        else:
            future.set_result(self._engine.resolve(effect.value))

    # ------------------------------------------------------------ waits

    def _look(self, now: float) -> list[Event]:
        """Compares waits with their limits, reports a stall, and sets the time of the next look."""
        self._looked_s = now
        waits = self._controller.waiting_for()
        self._overdue &= set(waits)
        late: list[Event] = []
        self._look_at = self._event_s + self._report_after_s
        for wait in waits:
            if wait.limit_s is None or wait in self._overdue:
                continue
            deadline = wait.since_s + wait.limit_s
            if deadline <= now:
                self._overdue.add(wait)
                late.append(Overdue(wait))
            else:
                self._look_at = min(self._look_at, deadline)
        if now >= self._event_s + self._report_after_s:
            if waits:
                log.warning(
                    "%s: nothing has happened for %.0f s. %s",
                    self._name,
                    now - self._event_s,
                    described(waits, now),
                )
            while self._event_s + self._report_after_s <= now:
                self._report_after_s *= 2
            self._look_at = min(max(self._look_at, now), self._event_s + self._report_after_s)
        return late

    def _close(self) -> None:
        with self._lock:
            self._has_ended = True
            futures, self._futures = self._futures, {}
            self._asked.clear()
        for future in futures.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(Ended(f"{self._name} has ended"))
        self._engine.close()


def described(waits: Sequence[Wait], now: float) -> str:
    """What a controller waits for, in words, the longest wait first."""
    ordered = sorted(waits, key=lambda wait: wait.since_s)
    shown = "; ".join(f"{wait.what} (for {now - wait.since_s:.0f} s)" for wait in ordered[:REPORTED])
    more = f"; and {len(waits) - REPORTED} more" if len(waits) > REPORTED else ""
    return f"It waits for {shown}{more}."
