"""An owner of tasks, its agent and its workers: the core is real, the others do what a test says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from runtime._core import ids
from runtime._core.tasks import TaskState
from runtime._ownership.lineage import Lineage
from runtime._ownership.outcomes import Outcomes
from runtime._ownership.records import INLINE, Entry, PackedArguments, Submission
from runtime._ownership.tasks import Task, TaskOptions, Tasks
from runtime._wire.messages.base import ResourceRequest
from runtime._wire.messages.node import LeaseGranted
from runtime._wire.messages.worker import Done, Push, Value
from tests.runtime._ownership.fakes import Network, Process, WorkerLink, address_of

REQUEST = ResourceRequest({"CPU": 10_000})
RESULT = Value(INLINE, b"result")


class Owner:
    """A process that submits. `now` is its time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.process: Process = Network("owner").processes[0]
        self.objects, self.agent = self.process.objects, self.process.agent
        self.entries = self.process.entries
        self.lineage = Lineage(self.objects, self.process, 1 << 20)
        self.outcomes = Outcomes(self.objects, self.process.borrowing, self.lineage, self.process)
        self.tasks = Tasks(self.process.address, self.objects, self.outcomes, self.process)
        self.function: Any = SimpleNamespace(
            key=b"f" * 16, pickled=b"f", name="module.f", full_name="module.f", max_calls=0
        )
        self._made = 0

    def promise(self, task: Submission) -> None:
        """The program gets references to the results."""
        task_id, count = task.push.task_id, task.push.num_returns
        task.entries = tuple(self.objects.own(ids.object_id(task_id, 1 + n), 2) for n in range(count))

    def pack(self, *arguments: Entry) -> PackedArguments:
        for entry in arguments:
            entry.hold()
        return PackedArguments(None, list(arguments), list(range(len(arguments))), list(arguments))

    def submit(
        self, *arguments: Entry, retries: int = 0, results: int = 1, parent: bytes = b"", **options: Any
    ) -> Task:
        """A task, submitted."""
        self._made += 1
        packed = self.pack(*arguments)
        made = TaskOptions(REQUEST, max_retries=retries, num_returns=results, **options)
        push = Push(self._made.to_bytes(24, "big"), self.function.key, "", None, [], results)
        task = Task(
            packed,
            push,
            retries,
            retries,
            made.retry_exceptions,
            self.now,
            parent,
            TaskState.WAITING_FOR_ARGUMENTS if arguments else TaskState.QUEUED,
            pool=self.tasks.pool(self.function, made),
            function=self.function,
            options=made,
        )
        self.promise(task)
        self.tasks.submit(task)
        return task

    def grant(self, name: str, task: Task) -> WorkerLink:
        """The agent grants a worker for the class of a task."""
        address = address_of(name)
        link = self.process.workers.setdefault(address.worker_id, WorkerLink(address))
        granted = LeaseGranted(task.pool.key, name.encode().ljust(16, b"."), address, {})
        self.tasks.on_granted(granted, self.now)
        return link

    def done(self, link: WorkerLink, push: Push, *values: Value, **more: Any) -> None:
        """A worker answers."""
        self.outcomes.on_done(link, Done(push.task_id, list(values or (RESULT,)), **more), self.now)

    def drop(self, *tasks: Submission) -> None:
        """The program's references to results die."""
        for task in tasks:
            self.objects.release_all(task.entries)

    def failures(self) -> list[Any]:
        """What the core named as failures since the last time."""
        found = list(self.process.failures)
        self.process.failures.clear()
        return found
