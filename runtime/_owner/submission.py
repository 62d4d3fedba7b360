"""What a task and an actor's call have in common for the process that submitted them: what they wait for, what they
give, and how they end. Everything here runs under the pump's lock.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from runtime import exceptions
from runtime._core import ids
from runtime._core.tasks import TaskState
from runtime._ownership import records
from runtime._ownership.records import STORED, Entry
from runtime._system import interpreter
from runtime._transport.connection import Connection
from runtime._wire import serialization
from runtime._wire.messages.worker import Argument, Done, ReleaseHold, StreamItem, Value
from runtime.object_ref_generator import ObjectRefGenerator

from . import context
from .streaming import STREAMING, Stream

if TYPE_CHECKING:
    from runtime._process.core_worker import Core
    from runtime.object_ref import ObjectRef


_FIRST = (1).to_bytes(4, "little")  # what `ids.object_id` appends for the first result
NO_REFERENCES: list[Argument] = []  # of a push; never changed


def parent() -> bytes:
    """The task that runs here, or b""."""
    running = context.execution.get()
    return running.task_id if running is not None else b""


@lru_cache(256)
def pickled_classes(classes: tuple[type[BaseException], ...]) -> tuple[bytes, ...]:
    """Exception classes as `Push.retry_on` has them: each by itself, as the worker may not know all of them."""
    return tuple(serialization.dumps_function(cls)[0] for cls in classes)


def cannot_send(what: str, error: Exception) -> exceptions.RaySystemError:
    """What the results of a call get whose message could not be encoded."""
    return exceptions.RaySystemError(f"The {what} could not be sent: {error}")


class Submission(records.Submission, eq=False, gc=interpreter.TRACK_RECORDS, kw_only=True):
    """A task or call, until its results are there (or, for lineage, gone).

    A struct, because one is made for each call and that is how making one costs least. The garbage collector never
    visits it: where tasks queue up, its visits would cost more than all the rest. Whoever keeps it, which makes a cycle
    through the core, lets go of it when it is over or the process leaves.
    """

    core: Core

    def promise(self) -> ObjectRef | list[ObjectRef] | ObjectRefGenerator | None:
        """Makes the objects of the results, and what the user gets for them: a reference, a list of them, a generator,
        or None."""
        objects, task_id, count = self.core.objects, self.push.task_id, self.push.num_returns
        if count == 1:
            entry = objects.own(
                task_id + _FIRST, 1
            )  # held until the value is there, somebody wants it or not
            self.entries = (entry,)
            return objects.new_ref(entry)
        if count < 0:
            entry = objects.own(task_id + _FIRST, 1)
            self.entries = (entry,)
            ref = objects.new_ref(entry)
            self.stream = stream = Stream(self.core, task_id, ref if count == STREAMING else None)
            return ObjectRefGenerator(stream) if count == STREAMING else ref
        self.entries = tuple([objects.own(ids.object_id(task_id, index + 1), 1) for index in range(count)])
        return [objects.new_ref(entry) for entry in self.entries] or None

    def done(self, connection: Connection, message: Done) -> None:
        """The worker's answer came."""
        raise NotImplementedError

    def item(self, connection: Connection, message: StreamItem) -> None:
        """The next value of its stream came."""
        if self.stream is not None:
            self.stream.item(connection, message, self)

    def take_nested(self, connection: Connection, message: Done) -> None:
        """Keeps the references inside the results, and tells the worker when it need not any more."""
        if self.stream is not None:
            self.stream.raised = message.failed and self.state is not TaskState.CANCELLING
        objects = self.core.objects
        inner: list[Entry] = []
        nested = False
        for entry, value in zip(self.entries, message.values, strict=False):
            if value.nested:
                nested = True
                inner += objects.contain(entry, value.nested)
        if nested:
            release = ReleaseHold(message.task_id, self.push.attempt)
            self.core.borrowing.when_registered(inner, lambda: connection.send(release))

    def takes_retry(self, message: Done) -> bool:
        """Whether it runs again after an error of user code; that uses up one retry."""
        wanted = self.retry_exceptions
        if not wanted or not self.retries or self.state is TaskState.CANCELLING:
            return False
        if isinstance(wanted, tuple) and not message.retry:
            return False
        self.retries -= self.retries > 0
        return True

    def begin_attempt(self, seconds: float = 0.0) -> None:
        """The next push is another try; the last one was in user code for so long."""
        if self.state is not TaskState.FINISHED:
            self.core.history.ended(self, failed=True, seconds=seconds)
        self.push = msgspec.structs.replace(self.push, attempt=self.push.attempt + 1)

    def settle(self, values: list[Value], failed: bool, seconds: float = 0.0) -> None:
        """It is over: gives the results their values, or all of them the one error, and lets go of the arguments unless
        it may have to run again."""
        self.move(TaskState.FINISHED)
        self.core.history.ended(self, failed, values[0].data if failed else b"", seconds)
        objects = self.core.objects
        if self.stream is not None:
            values = [self.stream.end(values[0] if failed else None)]
        elif failed and len(values) == 1:
            values = values * len(self.entries)
        for entry, value in zip(self.entries, values, strict=False):
            known = entry.value is not None  # it ran again, for another result or for items of its stream
            if known and (self.stream is not None or value.kind & 1):
                objects.release(entry)
                continue
            if value.kind == STORED:
                self.stores(entry)
            elif entry.task is self and not entry.dependents:  # else tasks count on making it again
                entry.task = None
                self.stored_results -= 1
            if known:
                objects.supersede(entry, entry.object_id, value)
            else:
                objects.set_value(entry, value)
            objects.release(entry)
        if self.stored_results:
            self.core.lineage.keep(self)
            if self.stream is not None and self.stream.lost:
                self.core.lineage.items_lost(self)
        elif self.packed.held:
            self.core.lineage.release_arguments(self)
