"""The background thread of a pump: when it leads, naps and sleeps.

Waking a thread costs more than a message. So while callers lead in turns this thread naps, looking now and then
whether they still do; while one caller leads for long it sleeps until the alarm rings; and only when nobody waits it
leads itself. An event loop that drives the pump leads for good: then this thread only helps when user code holds up the
loop.
"""

from __future__ import annotations

import enum
import select
import time
from collections.abc import Callable
from typing import Any, Protocol

from runtime._core.fsm import Edge, Machine, Transitions

from .bell import Bell
from .failures import report

NAP_S = 0.002
LONG_NAP_S = 0.1
NAPS_BEFORE_SLEEP = 16


class Phase(enum.Enum):
    """What the background thread does."""

    NAPPING = enum.auto()
    SLEEPING = enum.auto()
    LEADING = enum.auto()
    ASSISTING = enum.auto()
    ENDED = enum.auto()


class Event(enum.Enum):
    """What the background thread meets."""

    NOBODY_WAITS = enum.auto()
    ONE_LEADS_LONG = enum.auto()
    ALARM = enum.auto()
    CALLER_WAITS = enum.auto()
    BURST = enum.auto()
    LOOP_DRIVES = enum.auto()
    FAILED = enum.auto()
    STOPPED = enum.auto()


TRANSITIONS: Transitions[Phase, Event] = {
    (Phase.NAPPING, Event.NOBODY_WAITS): Edge(Phase.LEADING, "no caller has led since the last look"),
    (Phase.NAPPING, Event.ONE_LEADS_LONG): Edge(Phase.SLEEPING, "one caller has led through many naps"),
    (Phase.SLEEPING, Event.ALARM): Edge(Phase.NAPPING, "something was sent, or the caller stopped leading"),
    (Phase.LEADING, Event.CALLER_WAITS): Edge(Phase.NAPPING, "a caller waits and leads itself"),
    (Phase.LEADING, Event.BURST): Edge(
        Phase.NAPPING, "a caller sends in full swing and needs the interpreter"
    ),
    (Phase.NAPPING, Event.LOOP_DRIVES): Edge(Phase.ASSISTING, "an event loop leads from now on"),
    (Phase.LEADING, Event.LOOP_DRIVES): Edge(Phase.ASSISTING, "an event loop leads from now on"),
    (Phase.LEADING, Event.FAILED): Edge(Phase.NAPPING, "a bug was logged"),
    **{
        (phase, Event.FAILED): Edge(phase, "a bug was logged")
        for phase in (Phase.NAPPING, Phase.SLEEPING, Phase.ASSISTING)
    },
    **{
        (phase, Event.STOPPED): Edge(Phase.ENDED, "the pump was stopped")
        for phase in (Phase.NAPPING, Phase.SLEEPING, Phase.LEADING, Phase.ASSISTING)
    },
}


class Led(Protocol):
    """A pump, as its background thread sees it."""

    @property
    def stopped(self) -> bool:
        """Whether the pump was stopped."""

    @property
    def dirty(self) -> list[Any]:
        """The connections with something to send."""

    @property
    def followers(self) -> list[Any]:
        """The threads that would lead."""

    @property
    def rounds(self) -> int:
        """How many rounds a waiting thread has led in which something came."""

    @property
    def in_burst(self) -> bool:
        """Whether another thread had to flush what it sent during the last poll."""

    @property
    def is_led(self) -> bool:
        """Whether a thread leads."""

    def try_to_lead(self) -> bool:
        """Becomes the leader, unless there is one."""

    def stop_leading(self) -> None:
        """Lets another thread lead."""

    def background_round(self) -> None:
        """Flushes, waits for events, and handles them. `kick` ends the wait. The caller leads."""

    def poll_once(self) -> None:
        """One round without waiting, if nobody leads."""

    def flush_all(self) -> None:
        """Writes everything buffered."""


class Background:
    """Decides what the thread does next; `turn` is one step, on that thread.

    Args:
        pump: what it helps.
        nap: sleeps for some seconds.
    """

    def __init__(self, pump: Led, nap: Callable[[float], None] = time.sleep) -> None:
        self.machine = Machine("the background thread", Phase.NAPPING, TRANSITIONS)
        self.alarm = Bell()
        """Armed while the thread sleeps. Rung when something is to be sent, or when nobody leads any more."""
        self.assists = False
        """An event loop drives the pump."""
        self.rest_s: float | None = None
        """How long the thread may sleep beside an event loop."""
        self._pump = pump
        self._nap = nap
        self._naps = 0
        self._poll = select.poll()
        self._poll.register(self.alarm.fd, select.POLLIN)
        self._turns: dict[Phase, Callable[[], Event | None]] = {
            Phase.NAPPING: self._nap_and_look,
            Phase.SLEEPING: self._sleep,
            Phase.LEADING: self._lead,
            Phase.ASSISTING: self._assist,
        }

    def run(self) -> None:
        """The body of the thread."""
        while self.machine.state is not Phase.ENDED:
            try:
                self.turn()
            except Exception:
                if self._pump.stopped:  # it met what `stop` has closed
                    self.machine.step(Event.STOPPED)
                    break
                report("the background thread")
                self.machine.step(Event.FAILED)
                self._nap(LONG_NAP_S)

    def turn(self) -> None:
        """Does what the phase says once, and takes the edge of what it met."""
        event = self._turns[self.machine.state]()
        if self._pump.stopped:
            if event is Event.NOBODY_WAITS:
                self._pump.stop_leading()
            event = Event.STOPPED
        if event is not None:
            self.machine.step(event)

    def assist(self, epoll_fd: int) -> None:
        """An event loop drives the pump from now on."""
        self.assists = True
        self._poll.register(epoll_fd, select.POLLIN)
        self.alarm.ring()

    def _nap_and_look(self) -> Event | None:
        rounds = self._pump.rounds
        self._nap(NAP_S)
        return self._look(rounds)

    def _look(self, rounds: int) -> Event | None:
        pump = self._pump
        if self.assists:
            return Event.LOOP_DRIVES
        if pump.stopped:
            return None
        if pump.followers or rounds != pump.rounds:
            self._naps = 0
        elif pump.try_to_lead():
            self._naps = 0
            return Event.NOBODY_WAITS
        else:  # the leader waits for something
            if pump.dirty:
                pump.flush_all()
            self._naps += 1
            if self._naps >= NAPS_BEFORE_SLEEP:
                return Event.ONE_LEADS_LONG
        return None

    def _sleep(self) -> Event | None:
        self._naps = 0
        pump = self._pump
        rounds = pump.rounds
        # A thread that stops leading, or sends, from here on sees that the alarm is armed.
        self.alarm.armed = True
        if pump.is_led and not pump.dirty and not pump.stopped:
            self._poll.poll()
        self.alarm.armed = False
        self.alarm.clear()
        self.machine.step(Event.ALARM)
        return self._look(rounds)

    def _lead(self) -> Event:
        pump = self._pump
        try:
            while not (pump.followers or pump.stopped or self.assists):
                pump.background_round()
                if pump.in_burst:  # what comes in waits for a nap
                    return Event.BURST
        finally:
            pump.stop_leading()
        return Event.LOOP_DRIVES if self.assists else Event.CALLER_WAITS

    def _assist(self) -> None:
        pump = self._pump
        self.alarm.armed = True
        if not pump.dirty and not pump.stopped:
            self._poll.poll(None if self.rest_s is None else self.rest_s * 1000)
        self.alarm.armed = False
        self.alarm.clear()
        if pump.dirty:
            self._nap(NAP_S)  # mostly the loop is about to flush
        elif not pump.stopped:
            self._nap(LONG_NAP_S)
        if not pump.stopped:
            pump.poll_once()
