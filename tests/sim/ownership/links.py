"""Links of the simulated world: in order per direction, late by a seeded time, cut when a process dies.

Each pair of processes may have two links, as either side may connect before it hears of the other's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from runtime._wire.messages.base import ErrorKind, ErrorReply, WorkerAddress
from runtime._wire.messages.worker import Borrowed
from tests.sim.events import Events

STEP_S = 1e-7
SPEEDS_S = (0.0001, 0.001, 0.001, 0.01, 0.04)
"""Some links are slow for the whole run: that is what reorders messages of different links. None is so slow that a
worker's last words come later than its owner waits for them (`REASON_WAIT_S`)."""
ROOMS = (1, 3, 1000)
"""So much may be under way before a link is congested."""
UNSENDABLE = "unsendable"
"""The name of tasks and calls whose messages cannot be encoded."""


class Party(Protocol):
    """Who is at the end of a link."""

    name: str
    alive: bool

    def receive(self, link: SimLink, message: Any, correlation: int) -> None:
        """A message that is no reply."""

    def round(self, action: Callable[[], None]) -> None:
        """Runs what a message or a closed link causes, and what is due after it."""

    def borrow_failed(self, object_ids: list[bytes]) -> None:
        """An owner does not know these that this party has borrowed."""

    def link_closed(self, link: SimLink) -> None:
        """The other end is gone."""


class SimLink:
    """One end. The interface of `runtime._ownership.records.Link`."""

    def __init__(self, world: Events, here: Party, peer: WorkerAddress | None, speed_s: float) -> None:
        self.here = here
        self.peer: Any = peer
        self.other: SimLink
        self.sent_functions: set[bytes] = set()
        self.closed = False
        self.on_room: Callable[[Any], None] | None = None
        self._world = world
        self._speed_s = speed_s
        self._room = world.rng.choice(ROOMS)
        self._under_way = 0
        self._last = 0.0
        self._cut = float("inf")
        self._calls: dict[int, Callable[[Any], None]] = {}
        self._next = 0

    @classmethod
    def pair(cls, world: Events, one: Party, other: Party, address: WorkerAddress) -> tuple[SimLink, SimLink]:
        """A link that `one` opens to `other`, which has this address."""
        speed_s = world.rng.choice(SPEEDS_S)
        here, there = cls(world, one, address, speed_s), cls(world, other, None, speed_s)
        here.other, there.other = there, here
        return here, there

    @property
    def congested(self) -> bool:
        return self._under_way >= self._room

    def send(self, message: Any) -> None:
        if getattr(message, "name", "") == UNSENDABLE:
            raise ValueError("no such field")
        self._send(message, 0, False)

    def call(self, request: Any, callback: Callable[[Any], None]) -> None:
        if self.closed:
            callback(ErrorReply(ErrorKind.UNAVAILABLE, "closed"))
            return
        self._next += 1
        self._calls[self._next] = callback
        self._send(request, self._next, False)

    def reply(self, message: Any, correlation: int) -> None:
        self._send(message, correlation, True)

    def _send(self, message: Any, correlation: int, is_reply: bool) -> None:
        if not self.closed:
            self._under_way += 1
            self._later(lambda: self.other._arrive(message, correlation, is_reply))

    def _later(self, action: Callable[[], None]) -> None:
        world = self._world
        self._last = due = max(self._last + STEP_S, world.now + world.delay_s(self._speed_s))

        def arrive() -> None:
            self._under_way -= 1
            if due <= self._cut:
                action()
            if self.on_room is not None and not self.congested and not self.closed:
                on_room, self.on_room = self.on_room, None
                self.here.round(lambda: on_room(self))

        world.at(due - world.now, arrive)

    def _arrive(self, message: Any, correlation: int, is_reply: bool) -> None:
        if self.closed or not self.here.alive:
            return
        self._world.note(self.other.here.name, "->", self.here.name, correlation, message)
        if is_reply:
            if isinstance(message, Borrowed):
                self.here.borrow_failed(message.unknown)
            callback = self._calls.pop(correlation)
            self.here.round(lambda: callback(message))
        else:
            self.here.round(lambda: self.here.receive(self, message, correlation))

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """This side gives the other up; it hears of the end like of any other."""
        if not self.closed:
            self._under_way += 1
            self._later(self.other._closed_by_peer)
            self._world.at(0.0, self._closed_by_peer)

    def cut(self, clean: bool) -> None:
        """This end's process died. Unless it left cleanly, what was not flushed is lost; the end itself never is."""
        if self.closed:
            return
        world = self._world
        self.closed = True
        unsent_s = max(0.0, self._last - world.now)
        if not clean:
            unsent_s *= world.rng.random()
            self._cut = world.now + unsent_s
        world.at(unsent_s + STEP_S, self.other._closed_by_peer)

    def _closed_by_peer(self) -> None:
        if not self.closed:
            self.closed = True
            if self.here.alive:
                self.here.round(self._shut)

    def _shut(self) -> None:
        calls, self._calls = self._calls, {}
        for callback in calls.values():
            callback(ErrorReply(ErrorKind.UNAVAILABLE, "closed"))
        self.here.link_closed(self)
