"""The caller's side of a generator: its values arrive as objects of ours, in order."""

from __future__ import annotations

import time
from collections import deque
from weakref import WeakValueDictionary

from runtime import exceptions
from runtime._core import ids
from runtime._ownership.borrowing import Borrowing
from runtime._ownership.records import INLINE, STORED, Entry, Link, Submission
from runtime._ownership.released import Released
from runtime._transport.connection import Connection
from runtime._wire import serialization
from runtime._wire.messages.worker import ReleaseHold, StreamConsumed, StreamItem, StreamPaused, Value
from runtime.object_ref import ObjectRef
from runtime.object_ref_generator import DynamicObjectRefGenerator

from .links import Links
from .objects import Objects

STREAMING, DYNAMIC = -1, -2  # Push.num_returns
_NONE = Value(INLINE, b"N.")


class Streams:
    """The streams of this process that somebody may still read."""

    def __init__(self, links: Links, released: Released, objects: Objects, borrowing: Borrowing) -> None:
        self.links = links
        self.pump = links.pump
        self.released = released
        self.objects = objects
        self.borrowing = borrowing
        self.check = links.check
        self._open: WeakValueDictionary[bytes, Stream] = WeakValueDictionary()

    def open(self, task_id: bytes, completed: ObjectRef | None) -> Stream:
        """The stream of a task that begins. See `Stream`."""
        stream = self._open[task_id] = Stream(self, task_id, completed)
        return stream

    def get(self, task_id: bytes) -> Stream | None:
        """The stream of a task."""
        return self._open.get(task_id)

    def on_paused(self, connection: Connection, message: StreamPaused, _correlation: int) -> None:
        """A worker waits for us to take more."""
        stream = self._open.get(message.task_id)
        if stream is not None:
            stream.paused(connection, message)
        else:
            connection.send(StreamConsumed(message.task_id, -1))


class Stream:
    """Values that have come and were not taken yet. Changes under the lock.

    The object with the first id of the task stands for the whole: its value comes with the end, and is None, or the
    error that ended it from outside. An error of user code is the last item instead.

    Args:
        completed: reference to that object; None when `num_returns="dynamic"`, whose user has it already.
    """

    def __init__(self, core: Streams, task_id: bytes, completed: ObjectRef | None) -> None:
        self.core = core
        self.task_id = task_id
        self.completed = completed
        self.items: deque[ObjectRef] = deque()
        self.ended = False
        self.raised = False  # what ended it came from user code
        self._count = 0
        self._next: ObjectRef | None = None  # of the item after the last that came, if somebody waits for it
        self._abandoned = False
        self._paused: tuple[Connection, int] | None = None  # who wants to know when more than this was taken
        self._connection: Link | None = None  # of the worker, once it holds references for us
        self._unregistered = 0
        self._again = False  # it has ended, and its task runs once more because items were lost
        self._made: set[bytes] = set()  # what it has given since then
        self.lost: dict[bytes, Entry] = {}  # those: they wait for their values

    # ------------------------------------------------------------ from the worker

    def item(self, connection: Link, message: StreamItem, task: Submission) -> None:
        """The next value arrived. When the task runs again its first items come again."""
        nested = message.value.nested
        if nested:
            self._connection = connection
        if message.index < self._count:
            self._item_again(message, task)
            return
        ref = self._take_next()
        self._count += 1
        entry = ref._entry
        objects = self.core.objects
        if nested:
            self._unregistered += 1
            self.core.borrowing.when_registered(objects.contain(entry, nested), self._registered)
        if not self._abandoned:
            self.items.append(ref)
        if message.value.kind == STORED:
            task.stores(entry)
        objects.set_value(entry, message.value)

    def _item_again(self, message: StreamItem, task: Submission) -> None:
        objects, value = self.core.objects, message.value
        object_id = ids.object_id(self.task_id, message.index + 2)
        entry = objects.table.entries.get(object_id)
        if self._again:
            self._made.add(object_id)
        if entry is not None and value.nested:
            self._unregistered += 1
            self.core.borrowing.when_registered(objects.contain(entry, value.nested), self._registered)
        if entry is not None and value.kind == STORED:
            task.stores(entry)
        lost = self.lost.pop(object_id, None)
        if lost is not None and lost is entry:  # else its last reference went meanwhile
            objects.set_value(entry, value)
        else:
            objects.supersede(entry, object_id, value)

    def lose(self, entry: Entry) -> None:
        """An item is lost. It comes again when its task has ended and runs again: the end must not wait for somebody to
        take this item.
        """
        self.lost[entry.object_id] = entry
        self._resume()

    def begin_again(self) -> None:
        """The task runs once more for the items in `lost`."""
        self._again = True
        self._made.clear()

    def _take_next(self) -> ObjectRef:
        """The reference for what comes now."""
        ref, self._next = self._next, None
        if ref is None:
            objects = self.core.objects
            ref = objects.new_ref(objects.own(ids.object_id(self.task_id, self._count + 2)))
        return ref

    def _registered(self) -> None:
        self._unregistered -= 1
        self._release_hold()

    def _release_hold(self) -> None:
        """The worker keeps the references in all items until the stream is over and we have taken them."""
        if self.ended and not self._again and not self._unregistered and self._connection is not None:
            self._connection.send(ReleaseHold(self.task_id))
            self._connection = None

    def end(self, error: Value | None) -> Value:
        """Nothing more will come. Returns the value of `completed`."""
        objects = self.core.objects
        if self.ended:  # with the node agent, or before its task ran again
            self._again = False
            for object_id, entry in list(self.lost.items()):
                if error is not None or object_id not in self._made:  # else it was lost once more
                    del self.lost[object_id]
                    objects.set_value(entry, error or self._not_made_again(entry))
            self._release_hold()
            return error or _NONE
        last = error
        if error is not None and not self._abandoned:
            if self.raised:
                ref, last = self._take_next(), None
                self._count += 1
                self.items.append(ref)
                objects.set_value(ref._entry, error)
            elif self.completed is not None:
                self.items.append(self.completed)
        elif self.raised:
            last = None
        self.ended = True
        if self._next is not None:  # somebody waits for what will not come
            objects.set_value(self._next._entry, last or self._end_error())
        self._release_hold()
        if last is not None:
            return last
        return _NONE if self.completed is not None or self._abandoned else self._collect()

    def _not_made_again(self, entry: Entry) -> Value:
        reason = "GENERATOR_TASK_FAILED_FOR_OBJECT_RECONSTRUCTION"
        why = "the generator that made it gave fewer values when it ran again"
        owner = self.core.objects.owner_address(entry)
        error = exceptions.ObjectReconstructionFailedError(entry.object_id.hex(), reason, why, owner)
        return self.core.objects.error_value(error)

    def _end_error(self) -> Value:
        error = exceptions.ObjectRefStreamEndOfStreamError("the generator has no more values")
        return self.core.objects.error_value(error)

    def _collect(self) -> Value:
        """All items as one value: the result of a call with `num_returns="dynamic"`."""
        refs, self.items = self.items, deque()
        serialized = serialization.serialize(DynamicObjectRefGenerator(refs))
        objects = self.core.objects
        objects.table.contain(objects.table.entries[ids.object_id(self.task_id, 1)], serialized.references)
        return Value(INLINE, serialized.data, (), objects.nested_of(serialized.references))

    # ------------------------------------------------------------ back-pressure

    @property
    def _consumed(self) -> int:
        return self._count - len(self.items)

    def paused(self, connection: Connection, message: StreamPaused) -> None:
        """The worker waits for us to take more."""
        if self._abandoned or self._again or self.lost or self.completed is None:
            connection.send(StreamConsumed(self.task_id, -1))
        else:
            self._paused = connection, message.consumed
            self._resume()

    def _resume(self) -> None:
        """Lets the worker go on if it waits for what we have taken by now."""
        unlimited = self._abandoned or bool(self.lost)
        if self._paused is not None and (unlimited or self._consumed > self._paused[1]):
            connection, self._paused = self._paused[0], None
            connection.send(StreamConsumed(self.task_id, -1 if unlimited else self._consumed))

    def abandon(self) -> None:
        """Nobody will take anything any more. The task runs to its end all the same, and what it yields is freed."""
        self._abandoned = True
        self.items.clear()
        self._next = None
        self._resume()

    # ------------------------------------------------------------ to the user

    def next(self, timeout_s: float | None) -> ObjectRef | None:
        """Waits for the next item and takes it; None when the stream has ended.

        Raises:
            TimeoutError: nothing came in time.
            RaySystemError: this process is not connected any more.
        """
        core = self.core
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                ref = self.items.popleft()
            except IndexError:
                if self.ended and not self.items:
                    return None
                core.check()
                left = None if deadline is None else deadline - time.monotonic()
                if not core.links.wait(lambda: self.items or self.ended, left):
                    raise TimeoutError(f"no item within {timeout_s} s") from None
                continue
            if self._paused is not None:
                with core.links.lock:
                    self._resume()
                core.pump.kick()
            return ref

    def peek(self) -> ObjectRef:
        """A reference to the next item, which may be still to come; an error if the stream has ended."""
        with self.core.links.lock:
            for ref in tuple(self.items)[:1]:
                return ref
            if self._next is None:
                self._next = self._take_next()
                if self.ended:
                    self.core.objects.set_value(self._next._entry, self._end_error())
                elif self.core.pump.failure is not None:
                    error = self.core.objects.error_value(self.core.pump.failure)
                    self.core.objects.set_value(self._next._entry, error)
            return self._next
