"""The caller's side of a streaming generator: items arrive as objects of ours, in order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from runtime._core import ids
from runtime._transport.connection import Connection
from runtime._wire.messages.worker import ReleaseHold, StreamItem, Value

if TYPE_CHECKING:
    from runtime.object_ref import ObjectRef

    from .core_worker import Core
    from .submission import Submission


class Stream:
    """Items that have come and were not taken yet. Changes under the lock."""

    def __init__(self, core: Core, task: Submission) -> None:
        self._core = core
        self.task = task
        self.items: deque[ObjectRef] = deque()
        self.ended = False
        self._count = 0
        self._connection: Connection | None = None  # of the worker, once it holds references for us
        self._unregistered = 0

    def item(self, connection: Connection, message: StreamItem) -> None:
        """The next value arrived. After a retry the first items come again and are skipped."""
        nested = message.value.nested
        if nested:
            self._connection = connection
        if message.index < self._count:
            return
        self._count += 1
        objects = self._core.objects
        entry = objects.own(ids.object_id(message.task_id, self._count + 1))
        self.items.append(objects.new_ref(entry))
        if nested:
            self._unregistered += 1
            objects.when_registered(objects.contain(entry, nested), self._registered)
        objects.set_value(entry, message.value)

    def _registered(self) -> None:
        self._unregistered -= 1
        self._release_hold()

    def _release_hold(self) -> None:
        """The worker keeps the references in all items until the stream is over and we have taken them."""
        if self.ended and not self._unregistered and self._connection is not None:
            self._connection.send(ReleaseHold(self.task.push.task_id))
            self._connection = None

    def end(self, error: Value | None) -> None:
        """Nothing more will come; an error is the last item."""
        if error is not None:
            entry = self._core.objects.own(ids.object_id(self.task.push.task_id, self._count + 2))
            self.items.append(self._core.objects.new_ref(entry))
            self._core.objects.set_value(entry, error)
        self.ended = True
        self._release_hold()

    def next(self, timeout_s: float | None) -> ObjectRef | None:
        """Waits for the next item and takes it; None when the stream has ended.

        Raises:
            TimeoutError: nothing came in time.
        """
        if not self._core.wait(lambda: self.items or self.ended, timeout_s):
            raise TimeoutError(f"no item within {timeout_s} s")
        with self._core.lock:
            return self.items.popleft() if self.items else None
