"""What every service of the control store gets, and how services notify each other."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime._control.journal import Journal
from runtime._control.supervisor import Supervisor
from runtime._transport.channel import Channel
from runtime._wire.messages.base import Message

Handlers = Mapping[type[Message], Callable[[Channel, Any], Any]]
"""A service's part of the dispatch table: what it does with each message type it answers for. The message's
type is the key, so a handler names it in its own signature; a handler is a `channel.Handler` for that type.
"""


@dataclass(slots=True)
class Context:
    """Shared by the services of one control store."""

    journal: Journal
    tasks: Supervisor = field(default_factory=Supervisor)
    wall_time: Callable[[], float] = time.time  # for what users see; waits use the loop's clock
    rng: random.Random = field(default_factory=random.Random)

    def now(self) -> float:
        """The loop's clock, in seconds."""
        return asyncio.get_running_loop().time()

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Runs `action` in `delay_s` seconds, unless the control store has ended by then."""
        asyncio.get_running_loop().call_later(delay_s, self._act, action)

    def _act(self, action: Callable[[], None]) -> None:
        if not self.tasks.closed:
            action()


class Signal:
    """Runs its listeners once, at the end of the loop turn in which it was first set."""

    __slots__ = ("_listeners", "_scheduled")

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._scheduled = False

    def connect(self, listener: Callable[[], None]) -> None:
        """Adds a listener; they run in the order they came."""
        self._listeners.append(listener)

    def set(self) -> None:
        """Schedules the listeners unless they are scheduled already."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        for listener in self._listeners:
            listener()
