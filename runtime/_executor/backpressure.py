"""Back-pressure: a generator pauses while too much of what it yielded is not consumed. The worker's side.

A generator reserves room for its next yield before it makes it. Without room it asks the callers whose values fill the
limit (`StreamPaused`) and waits for their answers (`StreamConsumed`); while there is room nothing is sent.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections import deque
from collections.abc import Callable

from runtime._owner.context import Execution
from runtime._owner.links import Links
from runtime._transport.connection import Connection
from runtime._wire.messages.worker import Push, StreamConsumed, StreamOptions, StreamPaused

DEFAULT = StreamOptions()


class Gate:
    """One stream. `reserved` is the room for the next yield; `consumed` is what we know of. `sizes`: of the values that
    nobody has taken yet, if there is a limit in bytes."""

    __slots__ = (
        "_dropped",
        "asked",
        "connection",
        "consumed",
        "ended",
        "limit",
        "limit_bytes",
        "reserved",
        "sent",
        "sizes",
        "step",
        "task_id",
        "unread_bytes",
    )

    def __init__(self, connection: Connection, task_id: bytes, options: StreamOptions) -> None:
        self.connection = connection
        self.task_id = task_id
        self.limit = options.limit if options.limit > 0 else sys.maxsize
        self.step = options.objects_per_yield
        self.reserved = 0
        self.sent = 0
        self.consumed = 0
        self.asked = False
        self.ended = False
        self.limit_bytes = options.limit_bytes
        self.sizes: deque[int] | None = deque() if options.limit_bytes > 0 else None
        self.unread_bytes = 0
        self._dropped = 0  # sizes of values that are consumed

    @property
    def is_full(self) -> bool:
        """Whether its own limits allow no further yield now. The size of a yield is known only afterwards, so one may
        exceed the limit in bytes."""
        return self.waiting >= self.limit or (
            self.sizes is not None and self.unread_bytes >= self.limit_bytes
        )

    @property
    def waiting(self) -> int:
        """How many values nobody has taken yet."""
        return max(0, self.sent + self.reserved - self.consumed)

    def yielded(self) -> None:
        """The room that was reserved is used."""
        self.sent += self.reserved
        self.reserved = 0

    def sending(self, size_bytes: int) -> None:
        """A value is about to leave. Only with a limit in bytes; under the lock."""
        assert self.sizes is not None
        self.sizes.append(size_bytes)
        self.unread_bytes += size_bytes
        self._drop_sizes()

    def take(self, consumed: int) -> None:
        """So many values are consumed."""
        self.consumed = max(self.consumed, consumed)
        self._drop_sizes()

    def _drop_sizes(self) -> None:
        while self.sizes and self._dropped < self.consumed:
            self.unread_bytes -= self.sizes.popleft()
            self._dropped += 1


class Backpressure:
    """The gates of a worker.

    `limit` is that of all streams together; -1: none.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self.limit = -1
        self._gates: dict[
            tuple[Connection, bytes], Gate
        ] = {}  # changes, like what is in them, under the pump's lock
        self._version = 0  # grows when there may be room
        self._wakers: list[Callable[[], object]] = []

    def gate(self, connection: Connection, push: Push) -> Gate | None:
        """The gate of a stream that begins; None when nothing limits it."""
        options = push.stream or DEFAULT
        if options.limit <= 0 and options.limit_bytes <= 0 and self.limit <= 0:
            return None
        gate = Gate(connection, push.task_id, options)
        with self._links.lock:
            self._gates[connection, push.task_id] = gate
            if connection.closed:
                gate.take(sys.maxsize)
        return gate

    def sending(self, gate: Gate, size_bytes: int) -> None:
        """A value of a stream with a limit in bytes is about to leave."""
        with self._links.lock:
            gate.sending(size_bytes)

    def end(self, gate: Gate) -> None:
        """The generator is over. With a common limit, what is left of it still counts until it is consumed."""
        with self._links.lock:
            gate.ended = True
            gate.reserved = 0
            self._changed(gate)
        if self.limit > 0:
            self._links.pump.wake()  # another thread may wait for the room

    def _changed(self, gate: Gate) -> None:
        if gate.ended and (self.limit <= 0 or not gate.waiting):
            self._gates.pop((gate.connection, gate.task_id), None)
        self._version += 1
        wakers, self._wakers = self._wakers, []
        for waker in wakers:
            waker()

    def on_consumed(self, connection: Connection, message: StreamConsumed, _correlation: int) -> None:
        gate = self._gates.get((connection, message.task_id))
        if gate is not None:
            gate.asked = False
            gate.take(sys.maxsize if message.consumed < 0 else message.consumed)
            self._changed(gate)

    def caller_lost(self, connection: Connection) -> None:
        """Nobody will consume what went there. Under the lock."""
        for gate in [gate for gate in self._gates.values() if gate.connection is connection]:
            gate.take(sys.maxsize)
            self._changed(gate)

    def _reserve(self, gate: Gate) -> bool:
        """Takes room for one yield; if there is none, asks those who can make some. Under the lock."""
        if gate.is_full:
            fills = [gate]
        elif 0 < self.limit <= sum(other.waiting for other in self._gates.values()):
            fills = [other for other in self._gates.values() if other.waiting]
        else:
            gate.reserved = gate.step
            return True
        for other in fills:
            if not other.asked:
                other.asked = True
                other.connection.send(StreamPaused(other.task_id, other.consumed))
        return False

    def wait(self, gate: Gate, running: Execution) -> None:
        """Blocks until there is room for the next yield, and takes it.

        Raises:
            KeyboardInterrupt: the task was cancelled.
        """
        links = self._links
        while True:
            with links.lock:
                if self._reserve(gate):
                    return
                seen = self._version
            links.pump.flush_all()
            links.wait(lambda: self._version != seen or running.cancelled, None)  # noqa: B023
            if running.cancelled:
                raise KeyboardInterrupt

    async def wait_async(self, gate: Gate) -> None:
        """`wait` for an event loop; cancelled like any coroutine."""
        loop = asyncio.get_running_loop()
        while True:
            room: asyncio.Future[None] = loop.create_future()

            with self._links.lock:
                if self._reserve(gate):
                    return
                self._wakers.append(functools.partial(loop.call_soon_threadsafe, _wake, room))
            self._links.pump.flush_all()
            await room


def _wake(room: asyncio.Future[None]) -> None:
    if not room.done():
        room.set_result(None)
