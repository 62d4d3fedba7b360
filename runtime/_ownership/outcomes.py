"""What tasks and actors' calls share: their results, attempts and ends."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from runtime._core import ids
from runtime._core.tasks import TaskState
from runtime._wire.messages.worker import Done, ReleaseHold, StreamItem, Value

from .borrowing import Borrowing
from .lineage import Lineage
from .objects import ObjectTable
from .outbox import Outbox
from .records import STORED, Entry, Link, Submission

SENT = (TaskState.PUSHED, TaskState.CANCELLING)
"""A worker has it."""


class Submitter(Protocol):
    """Brings submissions of one kind to workers."""

    def on_done(self, task: Any, link: Link, message: Done, now: float) -> None:
        """The worker answered."""

    def rerun(self, task: Any) -> None:
        """Queues it once more after it was over, when the values of its arguments are there."""

    def cancel(self, task: Any, force: bool, recursive: bool) -> None:
        """Cancels it wherever it is. A finished one stays as it is."""


class Outcomes:
    """The submissions of a process that have no results yet."""

    def __init__(self, objects: ObjectTable, borrowing: Borrowing, lineage: Lineage, outbox: Outbox) -> None:
        self.pending: dict[bytes, Submission] = {}
        """By task id, in the order of submission."""
        self.submitters: dict[type, Submitter] = {}
        """By the class of the submission."""
        self._discarded: dict[
            bytes, list[tuple[Entry, Value]]
        ] = {}  # by task id: stored, by attempts that failed
        self._objects = objects
        self._borrowing = borrowing
        self._lineage = lineage
        self._outbox = outbox
        lineage.rerun = self._rerun

    def _rerun(self, task: Submission) -> None:
        self.submitters[task.__class__].rerun(task)

    # ------------------------------------------------------------ from workers

    def on_done(self, link: Link, message: Done, now: float) -> None:
        """A worker answered a push."""
        task = self.pending.get(message.task_id)
        if task is not None and task.state in SENT:  # else the answer of a process that was given up
            del self.pending[message.task_id]
            task.worker = link.peer
            self.submitters[task.__class__].on_done(task, link, message, now)
        elif any(value.nested for value in message.values):
            link.send(ReleaseHold(message.task_id))

    def on_item(self, link: Link, message: StreamItem) -> None:
        """A generator's next value came."""
        task = self.pending.get(message.task_id)
        if task is not None and task.stream is not None and task.state in SENT:
            task.stream.item(link, message, task)

    # ------------------------------------------------------------ cancelling

    def cancel(self, object_id: bytes, force: bool, recursive: bool) -> None:
        """Cancels what makes an object. When it is over, nothing of it is rebuilt any more."""
        task_id = ids.task_id_of(object_id)
        task = self.pending.get(task_id)
        if task is not None:
            self._cancel(task, force, recursive)
            return
        finished = self._lineage.kept(task_id)
        if finished is not None:
            finished.cancelled = True

    def _cancel(self, task: Submission, force: bool, recursive: bool) -> None:
        task.cancelled = True
        self.submitters[task.__class__].cancel(task, force, recursive)

    def cancel_children(self, parent: bytes, force: bool) -> None:
        """Cancels what a cancelled task had submitted: the last first, as the end of one may let those behind it go."""
        for child in [child for child in reversed(self.pending.values()) if child.parent == parent]:
            self._cancel(child, force, True)

    # ------------------------------------------------------------ for submitters

    def begin_attempt(self, task: Submission, seconds: float = 0.0) -> None:
        """The next push is another try; the last one was in user code for so long."""
        if task.state is not TaskState.FINISHED:
            self._outbox.attempt_ended(task, True, b"", seconds)
        task.push = msgspec.structs.replace(task.push, attempt=task.push.attempt + 1)

    def drop_attempt(self, task: Submission, link: Link, message: Done) -> None:
        """An attempt failed and another one follows: nobody takes what it gave before it failed, nor the references
        inside. Its copies stay until the results are there, as the next attempt may write over them."""
        if any(value.nested for value in message.values):
            link.send(ReleaseHold(message.task_id, task.push.attempt))
        for entry, value in zip(task.entries, message.values, strict=False):
            if value.kind == STORED:
                self._discarded.setdefault(message.task_id, []).append((entry, value))

    def take_nested(self, task: Submission, link: Link, message: Done) -> None:
        """Keeps the references inside the results, and tells the worker when it need not any more."""
        if task.stream is not None:
            task.stream.raised = message.failed and task.state is not TaskState.CANCELLING
        for value in message.values:
            if value.nested:
                break
        else:
            return
        inner: list[Entry] = []
        for entry, value in zip(task.entries, message.values, strict=False):
            if value.nested:
                inner += self._objects.contain(entry, value.nested)
        release = ReleaseHold(message.task_id, task.push.attempt)
        self._borrowing.when_registered(inner, lambda: link.send(release))

    def fail(self, task: Submission, failure: Any) -> None:
        """It is over without results (see `failures.py`)."""
        self.pending.pop(task.push.task_id, None)
        self.settle(task, [self._outbox.error(failure)], failed=True)

    def settle(self, task: Submission, values: list[Value], failed: bool, seconds: float = 0.0) -> None:
        """It is over: gives the results their values, or all of them the one error, and lets go of the arguments unless
        it may have to run again."""
        task.move(TaskState.FINISHED)
        self._outbox.attempt_ended(task, failed, values[0].data if failed else b"", seconds)
        objects, stream = self._objects, task.stream
        if stream is not None:
            values = [stream.end(values[0] if failed else None)]
        elif failed and len(values) == 1:
            values = values * len(task.entries)
        if self._discarded:
            self._drop_discarded(task, values)
        for entry, value in zip(task.entries, values, strict=False):
            known = entry.value is not None  # it ran again, for another result or for items of its stream
            if known and (stream is not None or value.kind & 1):
                objects.release(entry)
                continue
            if value.kind == STORED:
                task.stores(entry)
            elif entry.task is task and not entry.dependents:  # else tasks count on making it again
                entry.task = None
                task.stored_results -= 1
            if known:
                objects.supersede(entry, entry.object_id, value)
            else:
                objects.set_value(entry, value)
            objects.release(entry)
        if task.stored_results:
            self._lineage.keep(task)
            if stream is not None and stream.lost:
                self._lineage.items_lost(task)
        elif task.packed.held:
            self._lineage.release_arguments(task)

    def _drop_discarded(self, task: Submission, values: list[Value]) -> None:
        """The results are there: copies of what earlier attempts gave are useless, unless these are in their places."""
        final = dict(zip((entry.object_id for entry in task.entries), values, strict=False))
        for entry, value in self._discarded.pop(task.push.task_id, ()):
            new = final[entry.object_id]
            useless = [node_id for node_id in value.locations if node_id not in new.locations]
            if useless:
                self._outbox.drop_copies(entry.object_id, useless, outdated=new.offset < 0)
