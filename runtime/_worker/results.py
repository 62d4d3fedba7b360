"""What tasks give back: values packed for their caller, one by one for a generator, and the references inside them held
until the caller has taken them.
"""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any

from runtime._core import ids
from runtime._transport.connection import Connection
from runtime._wire import serialization
from runtime._wire.messages.worker import Push, StreamItem, Value

from .objects import Entry

if TYPE_CHECKING:
    from .core_worker import Core

FLUSH_EVERY_S = 0.0005


class Results:
    """The results of the tasks of one worker."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._holds: dict[bytes, tuple[Connection, list[Entry]]] = {}
        self._last_flush = 0.0

    def pack(self, connection: Connection, push: Push, result: Any) -> list[Value]:
        """The values of a result, held for the caller until it has taken the references inside.

        Raises:
            ValueError: there are not as many values as the caller asked for.
        """
        count = push.num_returns
        if count == 1:
            results = [result]
        elif count <= 0:
            return []
        else:
            results = list(result)
            if len(results) != count:
                raise ValueError(
                    f"num_returns={count} values were expected, and the call returned {len(results)}."
                )
        owner = push.caller or connection.peer
        values = []
        held: list[Entry] = []
        for index, item in enumerate(results):
            serialized = serialization.serialize(item)
            object_id = ids.object_id(push.task_id, index + 1)
            values.append(self._core.objects.pack(object_id, serialized, owner))
            held += serialized.references
        if held:
            self._hold(connection, push.task_id, held)
        return values

    def stream(self, connection: Connection, push: Push, result: Any) -> None:
        """Sends what a generator yields, each value as it comes.

        Raises:
            TypeError: the result is no generator.
        """
        if not inspect.isgenerator(result) and not hasattr(result, "__next__"):
            raise TypeError(
                f"a stream of values needs a generator, and {push.name or push.method or 'the function'} "
                f"returned {type(result).__name__}"
            )
        for index, item in enumerate(result):
            self.send_item(connection, push, index, item)
            now = time.monotonic()
            if (
                now - self._last_flush > FLUSH_EVERY_S
            ):  # the first one leaves at once: what follows may take long
                self._last_flush = now
                self._core.pump.flush_all()

    def send_item(self, connection: Connection, push: Push, index: int, item: Any) -> None:
        """Sends one value of a generator."""
        serialized = serialization.serialize(item)
        object_id = ids.object_id(push.task_id, index + 2)
        value = self._core.objects.pack(object_id, serialized, push.caller or connection.peer)
        if serialized.references:
            self._hold(connection, push.task_id, serialized.references)
        connection.send(StreamItem(push.task_id, index, value))

    def _hold(self, connection: Connection, task_id: bytes, entries: list[Entry]) -> None:
        with self._core.lock:
            if connection.closed:
                return  # the caller died meanwhile: nobody will take them
            for entry in entries:
                entry.holds += 1
            previous = self._holds.get(task_id)
            self._holds[task_id] = (connection, [*(previous[1] if previous else ()), *entries])

    def release(self, task_id: bytes) -> None:
        """The caller has taken what was held for it. Under the lock."""
        held = self._holds.pop(task_id, None)
        for entry in held[1] if held else ():
            self._core.objects.release(entry)

    def caller_lost(self, connection: Connection) -> None:
        """Lets go of what was held for a caller that died. Under the lock."""
        for task_id in [task_id for task_id, (caller, _) in self._holds.items() if caller is connection]:
            self.release(task_id)
