"""What must run again when stored results are lost: the tasks that made them, for as long as somebody may need it.

A finished task whose result lies in an object store is kept together with what its arguments refer to. Large results of
other tasks among these are not kept in memory for that: their own tasks are, and run again first. So a chain of tasks
costs memory for descriptions, which are bounded in bytes, and not for every value along it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from runtime._core.tasks import TaskState
from runtime._wire.messages.base import Ok
from runtime._wire.messages.worker import ObjectLost

from .failures import NotRebuilt
from .objects import ObjectTable
from .outbox import Outbox
from .records import STORED, Entry, Link, Submission

DESCRIPTION_BYTES = 2000
"""What a kept task takes besides its arguments."""


class Lineage:
    """The finished tasks of this process that may have to run again. `limit_bytes`: for their descriptions."""

    def __init__(self, objects: ObjectTable, outbox: Outbox, limit_bytes: int) -> None:
        self._objects = objects
        self._outbox = outbox
        self.limit_bytes = limit_bytes
        self._kept: dict[bytes, Submission] = {}  # by task id, the oldest first
        self._bytes = 0
        self.rerun: Callable[[Submission], None]
        """Queues a task once more that was over; set by `Outcomes`."""
        objects.forget_task = self.forget

    def keep(self, task: Submission) -> None:
        """The task is over, and some result of it lies in a store: exchanges the hold on its arguments."""
        if not task.may_be_rebuilt:
            self.release_arguments(task)
            return
        packed = task.packed
        held: list[Entry] = []
        for entry in packed.held:
            (packed.lineage if entry.task is not None and entry.task.may_be_rebuilt else held).append(entry)
        if packed.lineage:
            packed.held = held
            for entry in packed.lineage:
                entry.dependents += 1
            for entry in packed.lineage:
                self._objects.release(entry)
        self._kept[task.push.task_id] = task
        self._bytes += _description_bytes(task)
        while self._bytes > self.limit_bytes and self._kept:
            self._drop(self._let_go(next(iter(self._kept.values()))))

    def kept(self, task_id: bytes) -> Submission | None:
        """The finished task of this id, if it may have to run again."""
        return self._kept.get(task_id)

    def close(self) -> None:
        """The process leaves the cluster: nothing runs again."""
        self._kept.clear()

    def forget(self, entry: Entry) -> None:
        """The result is freed: its task need not run again for it, unless a kept task has it as an argument."""
        if not entry.dependents:
            self._drop([entry])

    def rebuild(self, entry: Entry, asker: bytes = b"") -> NotRebuilt | None:
        """Every copy of the value is lost: has it made again. Returns why that is impossible, if it is.

        Args:
            asker: the other process that waits for it.
        """
        task = entry.task
        if task is not None and task.state is not TaskState.FINISHED:
            if entry.value is not None:  # it runs for another result of it
                self._begin_anew(entry)
            return None
        refusal = self._refusal(entry, asker)
        if refusal is not None:
            return refusal
        self._begin_anew(entry)
        self._run_all(task, asker)
        return None

    def on_lost(self, link: Link, message: ObjectLost, correlation: int) -> None:
        """A borrower found no copy of one of our objects."""
        entry = self._objects.table.entries.get(message.object_id)
        if entry is not None and entry.value is not None and entry.value.kind == STORED:
            left = tuple(node for node in entry.value.locations if node not in message.locations)
            if left:
                entry.value = msgspec.structs.replace(entry.value, locations=left)
            else:
                refusal = self.rebuild(entry, link.peer.worker_id)
                if refusal is not None:
                    entry.value = self._outbox.error(refusal)
        link.reply(Ok(), correlation)

    def items_lost(self, task: Submission) -> None:
        """Values of a generator were lost while it still ran."""
        stream = task.stream
        assert stream is not None
        lost = stream.lost
        for object_id in [object_id for object_id, entry in lost.items() if self._is_freed(entry)]:
            del lost[object_id]
        if not lost:
            return
        refusal = self._refusal(next(iter(lost.values())), b"")
        if refusal is None:
            self._run_all(task, b"")
            return
        error = self._outbox.error(refusal)
        for object_id in list(lost):
            self._objects.set_value(lost.pop(object_id), error)

    def _run_all(self, task: Submission | None, asker: bytes) -> None:
        pending = [task]
        while pending:
            task = pending.pop()
            if task is not None and self._keeps(task):  # else it runs already
                pending += self._run_again(task, asker)

    def _refusal(self, entry: Entry, asker: bytes) -> NotRebuilt | None:
        task, more = entry.task, None
        if task is None:
            reason = "PUT"
        elif not task.max_retries:
            reason = "RETRIES_DISABLED"
        elif task.cancelled:
            reason = "TASK_CANCELLED"
        elif task.state is not TaskState.FINISHED:
            return None
        elif not self._keeps(task):
            reason = "LINEAGE_EVICTED"
        elif not task.retries:
            reason = "MAX_ATTEMPTS_EXCEEDED"
        else:
            more = task.refuses_rerun(asker)
            if not more:
                return None
            reason = "REF_NOT_FOUND"
        reason = f"OBJECT_UNRECONSTRUCTABLE_{reason}"
        return NotRebuilt(entry.object_id, entry.owner, reason=reason, detail=more)

    def _run_again(self, task: Submission, asker: bytes) -> list[Submission | None]:
        """Starts a kept task. Returns those that must run first."""
        objects = self._objects
        self._take_out(task)
        task.retries -= task.retries > 0
        for result in task.entries:
            if self._is_freed(result):  # and will be once more
                self._begin_anew(result)
            result.hold()
        before: list[Submission | None] = []
        arguments, task.packed.lineage = task.packed.lineage, []
        for entry in arguments:
            entry.dependents -= 1
            entry.hold()
            if self._is_freed(entry):
                refusal = self._refusal(entry, asker)
                self._begin_anew(entry)
                if refusal is None:
                    before.append(entry.task)
                else:
                    objects.set_value(entry, self._outbox.error(refusal))
        task.packed.held = task.packed.held + arguments
        if task.stream is not None:
            task.stream.begin_again()
        self.rerun(task)
        return before

    def _begin_anew(self, entry: Entry) -> None:
        """What the lost value contained stays contained: somebody may have read it a moment ago, and be on the way to
        the owners of that."""
        entry.value = None
        entry.fetched = False
        self._objects.table.add(entry)
        task = entry.task
        if task is not None and task.stream is not None and entry not in task.entries:
            task.stream.lose(entry)

    def _is_freed(self, entry: Entry) -> bool:
        return self._objects.table.entries.get(entry.object_id) is not entry

    def _drop(self, entries: list[Entry]) -> None:
        """These will never be made again. A loop, for chains are long."""
        while entries:
            entry = entries.pop()
            task, entry.task = entry.task, None
            if task is not None:
                task.stored_results -= 1
                if self._keeps(task) and not task.stored_results:
                    entries += self._let_go(task)

    def _let_go(self, task: Submission) -> list[Entry]:
        """Returns the results that were only kept for this task."""
        self._take_out(task)
        arguments, task.packed.lineage = task.packed.lineage, []
        useless = []
        for entry in arguments:
            entry.dependents -= 1
            if not entry.dependents and self._is_freed(entry):
                useless.append(entry)
        self.release_arguments(task)
        return useless

    def _keeps(self, task: Submission) -> bool:
        return task.push.task_id in self._kept

    def _take_out(self, task: Submission) -> None:
        del self._kept[task.push.task_id]
        self._bytes -= _description_bytes(task)

    def release_arguments(self, task: Submission) -> None:
        """Lets go of what the arguments of a task that is over refer to."""
        held, task.packed.held = task.packed.held, []
        self._objects.release_all(held)


def _description_bytes(task: Submission) -> int:
    value = task.packed.value
    return DESCRIPTION_BYTES + (value.inline_bytes if value is not None else 0)
