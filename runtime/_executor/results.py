"""What tasks give back: values packed for their caller, one by one for a generator, and the references inside them held
until the caller has taken them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import GeneratorType
from typing import Any

from runtime._core import ids
from runtime._owner.context import Execution
from runtime._owner.links import Links
from runtime._owner.objects import plain_value
from runtime._owner.streaming import DYNAMIC
from runtime._ownership.records import Entry
from runtime._transport.connection import Connection
from runtime._wire import serialization
from runtime._wire.messages.worker import Push, StreamItem, Value
from runtime.object_ref_generator import Described

from .backpressure import DEFAULT, Backpressure, Gate
from .owner_side import OwnerSide

FLUSH_EVERY_S = 0.0005
CONGESTED_LOOK_S = 0.02
EAGER_ITEMS = 100
"""So many values of a stream leave at once, each by itself: they are not lost if the process dies with the next one."""


class Results:
    """The results of the tasks of one worker."""

    def __init__(self, links: Links, owner: OwnerSide) -> None:
        self._links = links
        self._owner = owner
        self.backpressure = Backpressure(links)
        self._holds: dict[tuple[Connection, bytes], dict[int, list[Entry]]] = {}  # by call, then by attempt
        self._last_flush = 0.0

    def pack(self, connection: Connection, push: Push, result: Any) -> list[Value]:
        """The values of a result, held for the caller until it has taken the references inside.

        Raises:
            ValueError: there are not as many values as the caller asked for.
            PartialResult: a generator gave fewer, or raised after the first.
        """
        count = push.num_returns
        if result.__class__ is GeneratorType and count > 0:
            result = _take(result, count)
        elif count == 1:
            result = (result,)
        elif count <= 0:
            return []
        elif len(result) != count:
            raise ValueError(f"Task returned {len(result)} objects, but num_returns={count}.")
        return self.pack_items(connection, push, result)

    def pack_items(self, connection: Connection, push: Push, items: Iterable[Any]) -> list[Value]:
        """The values of the first objects that a call returns."""
        owner = push.caller or connection.peer
        keeper, again = self.keeper(connection, push), push.attempt > 0
        values = []
        held: list[Entry] = []
        for index, item in enumerate(items):
            value = plain_value(item)
            if value is None:
                serialized = serialization.serialize(item)
                object_id = ids.object_id(push.task_id, index + 1)
                value = self._owner.pack(object_id, serialized, owner, again=again, keeper=keeper)
                held += serialized.references
            values.append(value)
        if held:
            self.hold(connection, push, held)
        return values

    def keeper(self, connection: Connection, push: Push) -> bytes:
        """Who will want to read what a call returns, and can do so in place: its caller, if that is on this node."""
        caller = connection.peer
        return (
            caller.worker_id if push.caller is None and caller.node_id == self._links.address.node_id else b""
        )

    def stream(self, connection: Connection, push: Push, result: Any, running: Execution) -> None:
        """Sends what a generator yields, each value as it comes.

        Raises:
            ValueError: the result is no generator.
            KeyboardInterrupt: the call was cancelled.
        """
        if not hasattr(result, "__next__"):
            name = push.name or push.method or "the function"
            kind = "dynamic" if push.num_returns == DYNAMIC else "streaming"
            raise ValueError(
                f'num_returns="{kind}": {name} must return a generator, and it returned {type(result).__name__}.'
            )
        gate = self.backpressure.gate(connection, push)
        sender = ItemSender(self._owner, self, connection, push, gate)
        send = sender.send_one if sender.per_yield == 1 else sender.send_all
        try:
            if gate is not None:
                self.backpressure.wait(gate, running)
            for item in result:
                send(item)
                if connection.congested:
                    self._links.wait(lambda: not connection.congested or running.cancelled, None)
                if gate is not None:
                    gate.yielded()
                    self.backpressure.wait(gate, running)
                if running.cancelled:
                    raise KeyboardInterrupt
                now = time.monotonic()
                if sender.count <= EAGER_ITEMS or now - self._last_flush > FLUSH_EVERY_S:
                    self._last_flush = now
                    self._links.pump.flush_all()
        finally:
            if gate is not None:
                self.backpressure.end(gate)

    async def stream_async(
        self, connection: Connection, push: Push, result: Any, sent: Callable[[], None]
    ) -> None:
        """The same on an event loop; `sent` sees to it that what was sent leaves."""
        gate = self.backpressure.gate(connection, push)
        sender = ItemSender(self._owner, self, connection, push, gate)
        send = sender.send_one if sender.per_yield == 1 else sender.send_all
        try:
            if gate is not None:
                await self.backpressure.wait_async(gate)
            async for item in result if hasattr(result, "__anext__") else _async(result):
                send(item)
                while connection.congested:  # noqa: ASYNC110 - rare, and another thread ends it
                    await asyncio.sleep(CONGESTED_LOOK_S)
                if sender.count <= EAGER_ITEMS:
                    self._links.pump.flush_all()
                else:
                    sent()
                if gate is not None:
                    gate.yielded()
                    await self.backpressure.wait_async(gate)
        finally:
            if gate is not None:
                self.backpressure.end(gate)

    def hold(self, connection: Connection, push: Push, entries: list[Entry]) -> None:
        """Keeps the references in a value until the caller has taken them."""
        with self._links.lock:
            if connection.closed:
                return  # the caller died meanwhile: nobody will take them
            self._owner.hold(entries)
            attempts = self._holds.setdefault((connection, push.task_id), {})
            attempts.setdefault(push.attempt, []).extend(entries)

    @property
    def lends(self) -> bool:
        """Whether a caller has yet to take what is held for it."""
        return bool(self._holds)

    def release(self, connection: Connection, task_id: bytes, attempt: int = -1) -> None:
        """The caller has taken what was held for it, in one attempt or (-1) in all. Under the lock."""
        attempts = self._holds.get((connection, task_id), {})
        for number in [attempt] if attempt >= 0 else list(attempts):
            for entry in attempts.pop(number, ()):
                self._owner.release(entry)
        if not attempts:
            self._holds.pop((connection, task_id), None)

    def caller_lost(self, connection: Connection) -> None:
        """Lets go of what was held for a caller that died. Under the lock."""
        self.backpressure.caller_lost(connection)
        for caller, task_id in [held for held in self._holds if held[0] is connection]:
            self.release(caller, task_id)


class ItemSender:
    """Sends the values of one generator. `per_yield`: how many each yield gives; `count`: how many were sent."""

    __slots__ = (
        "_again",
        "_connection",
        "_gate",
        "_hold",
        "_keeper",
        "_owner",
        "_pack",
        "_push",
        "_results",
        "count",
        "per_yield",
    )

    def __init__(
        self, owner: OwnerSide, results: Results, connection: Connection, push: Push, gate: Gate | None
    ) -> None:
        self._gate = gate if gate is not None and gate.sizes is not None else None
        self._results = results
        self._pack = owner.pack
        self._hold = results.hold
        self._connection = connection
        self._push = push
        self._owner = push.caller or connection.peer
        self._keeper = results.keeper(connection, push)
        self._again = push.attempt > 0
        self.count = 0
        self.per_yield = (push.stream or DEFAULT).objects_per_yield

    def send_one(self, item: Any) -> None:
        """Sends one value."""
        connection, push, index = self._connection, self._push, self.count
        if connection.closed:
            return  # the caller died; the generator runs to its end, as its effects may matter
        if index >= ids.MAX_STREAM_ITEMS:
            raise ValueError(
                f"A generator yielded more than {ids.MAX_STREAM_ITEMS} values, which is all that one call can. Let it "
                "end earlier, and call it again for the next values."
            )
        metadata = b""
        if item.__class__ is Described:
            metadata, item = item.packed(), item.value
        value = plain_value(item)
        if value is None:
            serialized = serialization.serialize(item)
            value = self._pack(
                ids.object_id(push.task_id, index + 2),
                serialized,
                self._owner,
                again=self._again,
                keeper=self._keeper,
            )
            if serialized.references:
                self._hold(connection, push, serialized.references)
        if self._gate is not None:
            self._results.backpressure.sending(self._gate, value.size_bytes or value.inline_bytes)
        connection.send(StreamItem(push.task_id, index, value, metadata))
        self.count = index + 1

    def send_all(self, items: Any) -> None:
        """Sends what one yield gave.

        Raises:
            ValueError: that is not as many objects as each yield must give.
        """
        expected = f"_num_objects_per_yield={self.per_yield}"
        if not isinstance(items, tuple | list):
            raise ValueError(
                f"With {expected} each yield must yield a tuple or list of length {self.per_yield}, "
                f"not {type(items).__name__}."
            )
        if len(items) != self.per_yield:
            raise ValueError(f"A generator yielded {len(items)} objects, but {expected}.")
        for item in items:
            self.send_one(item)


class PartialResult(Exception):
    """A generator gave only some of the values that were asked for, and then `error`."""

    def __init__(self, values: list[Any], error: Exception) -> None:
        super().__init__(values, error)
        self.values = values
        self.error = error


def _take(generator: Any, count: int) -> list[Any]:
    """The first `count` values of a generator; what it would yield after them is never made."""
    values: list[Any] = []
    try:
        for value in itertools.islice(generator, count):
            values.append(value)
        if len(values) < count:
            raise ValueError(
                f"The generator of the task returned {len(values)} objects, but num_returns={count}."
            )
    except Exception as error:
        if not values:
            raise
        raise PartialResult(values, error) from error
    return values


async def _async(iterator: Iterator[Any]) -> AsyncIterator[Any]:
    for item in iterator:
        yield item
