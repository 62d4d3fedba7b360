"""Streams: the values that a generator task yields, as objects of its caller, in order.

A stream has two lives. Its task yields items, ends, and may run once more for items that were lost (`SourceState`).
Its reader takes the items, or all of them at the end, or drops them (`ReaderState`). The tables say what each of the
two may do. `Stream` decides what follows from both: what becomes of an item, when the worker may go on, and when it may
let go of the references that it keeps for us.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final
from weakref import WeakValueDictionary

from runtime._core import ids
from runtime._core.fsm import Edge, InvalidTransition
from runtime._wire.messages.worker import ReleaseHold, StreamConsumed, StreamItem, StreamPaused, Value

from .borrowing import Borrowing
from .failures import NotRebuilt, ReplayDiffers, StreamEnded
from .objects import ObjectTable
from .outbox import Outbox
from .records import INLINE, STORED, Entry, Link, Submission

NONE = Value(INLINE, b"N.")
"""The pickle of None."""


class SourceState(IntEnum):
    """Where the task of a stream is. Integers, as in `_core/tasks.py`."""

    YIELDING = 0
    ENDED = 1
    REPEATING = 2


class ReaderState(IntEnum):
    """What the reader of a stream does."""

    TAKING = 0
    AWAITING = 1
    COLLECTING = 2
    COLLECTED = 3
    ABANDONED = 4


_Y, _E, _R = SourceState.YIELDING, SourceState.ENDED, SourceState.REPEATING
_T, _A = ReaderState.TAKING, ReaderState.AWAITING
_C, _D, _X = ReaderState.COLLECTING, ReaderState.COLLECTED, ReaderState.ABANDONED

SOURCE_TRANSITIONS: Final[Mapping[tuple[SourceState, SourceState], Edge[SourceState]]] = {
    (_Y, _E): Edge(_E, "its task is over, or the node agent is lost"),
    (_E, _R): Edge(_R, "its task runs once more for items that are lost"),
    (_R, _E): Edge(_E, "its task is over once more"),
    (_E, _E): Edge(_E, "its task is over after the node agent was lost"),
}
READER_TRANSITIONS: Final[Mapping[tuple[ReaderState, ReaderState], Edge[ReaderState]]] = {
    (_T, _A): Edge(_A, "it wants a reference to the item after the last that came"),
    (_A, _T): Edge(_T, "that item came, or the error that ended the task"),
    (_T, _C): Edge(_C, "it wants all items at the end"),
    (_C, _D): Edge(_D, "the task is over, and all items are one value, or an error"),
    (_T, _X): Edge(_X, "the generator was dropped"),
    (_A, _X): Edge(_X, "the generator was dropped"),
}


class Stream:
    """The items of one task that have come and were not taken: references of the program (`Outbox.reference`).

    Args:
        completed: the object with the first id of the task. It stands for the whole: its value comes with the end. That
            is None, or the error that ended the task from outside; an error of user code is the last item instead. When
            items are collected it is a list of them.
        collects: the reader wants all items at the end.
    """

    def __init__(
        self,
        objects: ObjectTable,
        borrowing: Borrowing,
        outbox: Outbox,
        task_id: bytes,
        completed: Entry,
        collects: bool,
    ) -> None:
        self._objects = objects
        self._borrowing = borrowing
        self._outbox = outbox
        self._task_id = task_id
        self._completed = completed
        self.source = SourceState.YIELDING
        self.reader = ReaderState.TAKING
        if collects:
            self._move_reader(ReaderState.COLLECTING)
        self.items: deque[Any] = deque()
        """The reader takes them from the left, without the lock, and then calls `resume` if a worker is `waiting`."""
        self.raised = False
        """What ended it came from user code."""
        self.ignores_errors = False
        """Errors that nobody reads are not logged, as nobody wants the items that are still to come."""
        self.waiting: tuple[Link, int] | None = None
        """The worker that wants to know when more than so many items are taken."""
        self.lost: dict[bytes, Entry] = {}
        """Items that wait for their task to run once more."""
        self._count = 0  # how many have come
        self._upcoming: Entry | None = None  # the item after them, once AWAITING, until it comes
        self._upcoming_ref: Any = None
        self._keepers: dict[Link, None] = {}  # the workers that keep references for us
        self._unregistered = 0  # how many items have references whose owners do not know of us yet
        self._expected: int | None = None  # how many items its task gave, once it has ended without an error
        self._repeated: set[bytes] = set()  # the items that came again while REPEATING
        self._given = 0  # how many items the last attempt gave while REPEATING

    @property
    def ended(self) -> bool:
        """Whether the task will yield nothing new any more."""
        return self.source is not SourceState.YIELDING

    def _move_source(self, target: SourceState) -> None:
        if (self.source, target) not in SOURCE_TRANSITIONS:
            raise InvalidTransition(f"the source of stream {self._task_id.hex()}", self.source, target, ())
        self.source = target

    def _move_reader(self, target: ReaderState) -> None:
        if (self.reader, target) not in READER_TRANSITIONS:
            raise InvalidTransition(f"the reader of stream {self._task_id.hex()}", self.reader, target, ())
        self.reader = target

    # ------------------------------------------------------------ from the task

    def item(self, link: Link, message: StreamItem, task: Submission) -> None:
        """The next value came. A task that runs again yields its first items again."""
        value = message.value
        if value.nested:
            self._keepers[link] = None
        if message.index < self._count or self.source is not _Y:
            self._repeat(message, task)
            return
        entry, ref = self._next_item()
        if value.nested:
            self._take_nested(entry, value)
        if message.metadata:
            self._objects.describe(entry, message.metadata)
        if value.kind == STORED:
            task.stores(entry)
        if self.reader is not _X:
            self.items.append(ref)  # before its value, which may call the reader
        self._objects.set_value(entry, value)

    def _next_item(self) -> tuple[Entry, Any]:
        """The object of the item that comes now, and the program's reference to it."""
        entry = self._upcoming
        if entry is None:
            entry = self._objects.own(ids.object_id(self._task_id, self._count + 2), 1)
            ref = self._outbox.reference(entry)
        else:
            ref = self._upcoming_ref
            self._upcoming = self._upcoming_ref = None
            if self.reader is ReaderState.AWAITING:
                self._move_reader(ReaderState.TAKING)
        entry.seen = entry.seen or self.ignores_errors
        self._count += 1
        return entry, ref

    def _repeat(self, message: StreamItem, task: Submission) -> None:
        objects, value = self._objects, message.value
        object_id = ids.object_id(self._task_id, message.index + 2)
        # What it yields beyond its first end is no item: the reader knows of the end.
        entry = objects.table.entries.get(object_id) if message.index < self._count else None
        if self.source is SourceState.REPEATING:
            if not message.index:  # perhaps of another attempt
                self._repeated.clear()
            self._repeated.add(object_id)
            self._given = message.index + 1
        if entry is not None and value.nested:
            self._take_nested(entry, value)
        if entry is not None and value.kind == STORED:
            task.stores(entry)
        lost = self.lost.pop(object_id, None)
        if lost is not None and lost is entry:  # else its last reference went meanwhile
            objects.set_value(entry, value)
        else:
            objects.supersede(entry, object_id, value)

    def _take_nested(self, entry: Entry, value: Value) -> None:
        self._unregistered += 1
        self._borrowing.when_registered(self._objects.contain(entry, value.nested), self._registered)

    def _registered(self) -> None:
        self._unregistered -= 1
        self._release_hold()

    def _release_hold(self) -> None:
        """A worker keeps the references in all items until the task is over and we have taken them."""
        if self.source is SourceState.ENDED and not self._unregistered and self._keepers:
            keepers, self._keepers = self._keepers, {}
            for link in keepers:
                link.send(ReleaseHold(self._task_id))

    def end(self, error: Value | None) -> Value:
        """The task is over. Returns the value of `completed`."""
        before = self.source
        self._move_source(SourceState.ENDED)
        if before is SourceState.YIELDING:
            value = self._end_items(error)
        else:
            self._end_repetition(error, before is SourceState.REPEATING)
            value = error or NONE
        self._release_hold()
        return value

    def _end_repetition(self, error: Value | None, has_run: bool) -> None:
        failure = error
        if has_run and self.raised and error is not None:  # the error is the last item
            failure = None
            self._fail_item(self._given, error)
            self._given += 1
        if has_run and failure is None and self._expected not in (None, self._given):
            assert self._expected is not None
            failure = self._outbox.error(ReplayDiffers(self._task_id, self._given, self._expected))
        if (
            has_run and failure is not None
        ):  # no item in a store counts: another run may have given other values
            for index in range(self._count):
                self._fail_item(index, failure)
        for object_id, entry in list(self.lost.items()):
            if failure is not None or object_id not in self._repeated:  # else it was lost once more
                del self.lost[object_id]
                self._objects.set_value(entry, failure or self._not_made_again(entry))

    def _fail_item(self, index: int, error: Value) -> None:
        """Gives an item an error, unless it has a value that cannot be lost."""
        objects, object_id = self._objects, ids.object_id(self._task_id, index + 2)
        entry = objects.table.entries.get(object_id)
        if entry is None or index >= self._count:
            return
        self.lost.pop(object_id, None)
        if entry.value is None:
            objects.set_value(entry, error)
        elif entry.value.kind == STORED:
            objects.supersede(entry, object_id, error)
            objects.set_value(entry, error)  # readers are to know that there are errors

    def _end_items(self, error: Value | None) -> Value:
        last = error
        if error is None:
            self._expected = self._count
        if error is not None and self.reader is not ReaderState.ABANDONED:
            if self.raised:
                last = None
                entry, ref = self._next_item()
                self.items.append(ref)
                self._objects.set_value(entry, error)
            elif self.reader is not ReaderState.COLLECTING:
                self._completed.hold()
                self.items.append(self._outbox.reference(self._completed))
        elif self.raised:
            last = None
        if self._upcoming is not None:  # it will not come; that the stream has ended is no error to be logged
            self._upcoming.seen = self._upcoming.seen or self.ignores_errors or last is None
            self._objects.set_value(self._upcoming, last or self._no_more())
            if self.reader is ReaderState.ABANDONED:
                self._upcoming = self._upcoming_ref = None
        if self.reader is not ReaderState.COLLECTING:
            return last or NONE
        self._move_reader(ReaderState.COLLECTED)
        items = list(self.items)
        self.items.clear()
        if last is not None:
            return last
        data, entries = self._outbox.collected(items)
        self._objects.table.contain(self._completed, entries)
        return Value(INLINE, data, (), self._objects.nested_of(entries))

    def _not_made_again(self, entry: Entry) -> Value:
        reason = "GENERATOR_TASK_FAILED_FOR_OBJECT_RECONSTRUCTION"
        detail = "the generator that made it gave fewer values when it ran again"
        return self._outbox.error(NotRebuilt(entry.object_id, entry.owner, reason=reason, detail=detail))

    def _no_more(self) -> Value:
        return self._outbox.error(StreamEnded())

    # ------------------------------------------------------------ from lineage

    def lose(self, entry: Entry) -> None:
        """An item is lost. It comes again when its task has ended and runs again: the end must not wait for somebody to
        take this item."""
        self.lost[entry.object_id] = entry
        self.resume()

    def begin_again(self) -> None:
        """The task runs once more for the items in `lost`."""
        self._move_source(SourceState.REPEATING)
        self._repeated.clear()
        self._given = 0
        self.raised = False

    # ------------------------------------------------------------ back-pressure

    @property
    def _taken(self) -> int:
        return self._count - len(self.items)

    @property
    def _is_unlimited(self) -> bool:
        """Whether the task must not wait for the reader."""
        return self.reader not in (_T, _A) or self.source is SourceState.REPEATING or bool(self.lost)

    def paused(self, link: Link, message: StreamPaused) -> None:
        """The worker waits until more than `message.consumed` items are taken."""
        self.waiting = link, message.consumed
        self.resume()

    def resume(self) -> None:
        """Lets the worker go on if it waits for what was taken by now."""
        if self.waiting is None:
            return
        link, consumed = self.waiting
        if self._is_unlimited:
            taken = -1
        elif self._taken > consumed:
            taken = self._taken
        else:
            return
        self.waiting = None
        link.send(StreamConsumed(self._task_id, taken))

    # ------------------------------------------------------------ from the reader

    def peek(self) -> Any:
        """A reference to the next item, which may be still to come. An error if there will be none."""
        for ref in tuple(self.items)[:1]:  # another thread may take it
            return ref
        if self._upcoming is None:
            self._move_reader(ReaderState.AWAITING)
            entry = self._upcoming = self._objects.own(ids.object_id(self._task_id, self._count + 2), 1)
            self._upcoming_ref = self._outbox.reference(entry)
            if self.ended:
                self._objects.set_value(entry, self._no_more())
            elif self._objects.failure is not None:
                self._objects.set_value(entry, self._objects.failure)
        return self._upcoming_ref

    def abandon(self) -> None:
        """Nobody will take anything any more. The task runs to its end all the same, and what it yields is freed."""
        self._move_reader(ReaderState.ABANDONED)
        self.items.clear()
        self.resume()
        if self.ended:  # else somebody may still wait for the upcoming item
            self._upcoming = self._upcoming_ref = None


class Streams:
    """The streams of a process that somebody reads, or whose tasks may yield more."""

    def __init__(self, objects: ObjectTable, borrowing: Borrowing, outbox: Outbox) -> None:
        self._objects = objects
        self._borrowing = borrowing
        self._outbox = outbox
        self._streams: WeakValueDictionary[bytes, Stream] = WeakValueDictionary()

    def open(self, task: Submission, completed: Entry, collects: bool) -> Stream:
        """The stream of a task that begins. See `Stream`."""
        task_id = task.push.task_id
        stream = Stream(self._objects, self._borrowing, self._outbox, task_id, completed, collects)
        self._streams[task_id] = task.stream = stream
        return stream

    def on_paused(self, link: Link, message: StreamPaused, _correlation: int) -> None:
        """A worker waits for us to take more."""
        stream = self._streams.get(message.task_id)
        if stream is not None:
            stream.paused(link, message)
        else:
            link.send(StreamConsumed(message.task_id, -1))
