"""Writes objects into shared memory that the agent has allotted to this process in advance, and reports them later.

An object that is freed before it was reported never existed for anybody else. Its space, still in the CPU's caches, is
reused at once.
"""

from __future__ import annotations

import time
from typing import Any

from runtime._core.allocator import Allocator, rounded
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.node import StoreAdd, StoreAllot, StoreAllotted, StoreReturn

from .links import Links

SHARE = 64
MAX_BYTES = 16 << 20
"""An allotment is at most min(capacity / SHARE, MAX_BYTES). The agent is asked for each larger object."""
IDLE_S = 1.0
"""Space that is unused for this long goes back to the agent."""
ANSWER_S = 60.0
REFUSED_S = 0.1
"""For this long after a refusal no allotment is requested: the agent is asked for each object."""


class StoreWriter:
    """Everything but `place` and `abandon` runs under the pump's lock."""

    def __init__(self, links: Links, capacity_bytes: int) -> None:
        self._links = links
        self._space = Allocator(0)
        self._limit = min(MAX_BYTES, capacity_bytes // SHARE)
        self._bytes = 0  # allotted, and not said to be an object yet
        self._asked_bytes = 0  # the last time; it doubles while the process keeps asking
        self._asking = False
        self._refused_until = 0.0
        self._used = False
        self._used_at = 0.0
        self._unsaid: dict[bytes, tuple[int, int, str]] = {}  # (offset, size, tag) by object id

    def place(self, size_bytes: int) -> int | None:
        """The offset of space for one object; None if the agent must be asked for it."""
        size, _ = rounded(size_bytes)
        if size > self._limit:
            return None
        for attempt in range(3):  # what was asked for ahead may have been for smaller objects
            with self._links.lock:
                self._used = True
                offset = self._space.allocate(size_bytes)
                if offset is not None:
                    if not attempt and (self._bytes - self._space.used_bytes) * 2 < self._asked_bytes:
                        self._ask(size)
                    return offset
                if not self._ask(size):
                    return None
            # Mostly the answer lies in the socket already: a thread that runs user code does not look.
            self._links.pump.wait(lambda: not self._asking, ANSWER_S)
        return None

    def abandon(self, offset: int) -> None:
        """Nothing was placed there after all."""
        with self._links.lock:
            self._space.free(offset)

    def say_later(self, object_id: bytes, offset: int, size_bytes: int, tag: str) -> None:
        """An object that only this process knows lies there."""
        self._unsaid[object_id] = offset, size_bytes, tag

    def say(
        self, object_id: bytes, offset: int, size_bytes: int, owner: WorkerAddress, keeper: bytes, tag: str
    ) -> None:
        """An object lies there. `keeper`: see `StoreAdd`."""
        self._bytes -= self._space.release(offset)
        self._links.agent.send(
            StoreAdd(owner.worker_id, owner.node_id, [(object_id, offset, size_bytes)], keeper, tag)
        )

    def say_all(self) -> None:
        """Others may meet our objects from now on."""
        if self._unsaid:
            by_tag: dict[str, list[tuple[bytes, int, int]]] = {}
            for object_id, (offset, size, tag) in self._unsaid.items():
                by_tag.setdefault(tag, []).append((object_id, offset, size))
                self._bytes -= self._space.release(offset)
            self._unsaid.clear()
            address = self._links.address
            for tag, objects in by_tag.items():
                self._links.agent.send(StoreAdd(address.worker_id, address.node_id, objects, tag=tag))

    def forget(self, object_id: bytes) -> bool:
        """Nobody needs this object. False if the agent knows of it."""
        placed = self._unsaid.pop(object_id, None)
        if placed is None:
            return False
        self._space.free(placed[0])
        return True

    @property
    def lingers(self) -> bool:
        """Whether `tick` will have something to do."""
        return self._bytes > 0

    def tick(self, now: float) -> None:
        """Says what was not said, and gives back what was not needed for a while."""
        self.say_all()
        if self._used:
            self._used = False
            self._used_at = now
        elif self._bytes and now - self._used_at > IDLE_S:
            self._return_holes()

    def give_back(self) -> None:
        """Memory is short."""
        self._return_holes()
        self._refused_until = time.monotonic() + REFUSED_S

    def _request(self, size: int) -> StoreAllot:
        """Asks for more each time, up to the limit: a process that places one object needs space for one."""
        self._asked_bytes = max(size, min(self._limit, 2 * self._asked_bytes))
        if self._bytes - self._space.used_bytes > self._limit:
            self._return_holes()  # too small for what is wanted now
            self._asked_bytes = self._limit
        self.say_all()  # else more and more could be there that nobody knows of
        return StoreAllot(size, self._asked_bytes // size)

    def _ask(self, size: int) -> bool:
        """Asks for more, unless that is under way. False: not now, memory is short."""
        if self._asking:
            return True
        if time.monotonic() < self._refused_until:
            return False
        self._asking = True

        def answered(reply: Any) -> None:
            self._asking = False
            self._answered(reply)

        self._links.agent.call(self._request(size), answered)
        return True

    def _answered(self, reply: Any) -> None:
        ranges = reply.ranges if isinstance(reply, StoreAllotted) else ()
        for start, size in ranges:
            self._space.add(start, size)
            self._bytes += size
        if not ranges:
            self._refused_until = time.monotonic() + REFUSED_S

    def _return_holes(self) -> None:
        holes = self._space.remove_holes()
        self._asked_bytes = 0
        if holes:
            self._bytes -= sum(size for _, size in holes)
            self._links.agent.send(StoreReturn(holes))
