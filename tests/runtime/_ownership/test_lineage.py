"""Which finished tasks are kept, and which of them run again when a result is lost."""

from __future__ import annotations

import pytest

from runtime._core.tasks import TaskState
from runtime._ownership.lineage import DESCRIPTION_BYTES, Lineage
from runtime._ownership.records import STORED, Entry, PackedArguments, Submission
from runtime._wire.messages.base import Ok
from runtime._wire.messages.worker import ObjectLost, Push, Value
from tests.runtime._ownership.fakes import PLAIN, Network, Process, object_name

NODE = b"n" * 28
LARGE = Value(STORED, b"", (), (), (NODE,), 10)


class Job(Submission, eq=False, kw_only=True):
    """A task that is over at once, and remembers that it was to run again."""

    reruns: int = 0

    def rerun(self) -> None:
        self.reruns += 1
        self.state = TaskState.WAITING_FOR_ARGUMENTS


class Owner:
    """A process that owns the results of tasks."""

    def __init__(self, limit_bytes: int = 1 << 20) -> None:
        self.network = Network("owner", "borrower")
        self.process: Process = self.network.processes[0]
        self.lineage = Lineage(self.process.objects, self.process, limit_bytes)
        self.lineage.rerun = Job.rerun  # type: ignore[assignment]
        self.entries = self.process.entries

    def task(self, name: str, *arguments: Entry, retries: int = -1) -> Job:
        """A task with one stored result, to which the program has a reference."""
        for entry in arguments:
            entry.hold()
        packed = PackedArguments(None, list(arguments), list(range(len(arguments))), list(arguments))
        push = Push(name.encode().ljust(24, b"."), b"", "", None, [], 1)
        task = Job(packed, push, retries, retries, False, 0.0, b"", TaskState.PUSHED)
        task.entries = (self.process.objects.own(object_name(name), 2),)
        self.finish(task)
        return task

    def finish(self, task: Job) -> None:
        """It gives its result."""
        [entry] = task.entries
        task.state = TaskState.FINISHED
        task.stores(entry)
        self.process.objects.set_value(entry, LARGE)
        self.process.objects.release(entry)
        self.lineage.keep(task)

    def drop(self, task: Job) -> None:
        self.process.objects.release(task.entries[0])


@pytest.fixture
def owner() -> Owner:
    return Owner()


def test_a_lost_result_is_made_again_by_its_task(owner: Owner) -> None:
    task = owner.task("x")
    assert owner.lineage.rebuild(task.entries[0]) is None
    assert task.reruns == 1
    assert task.entries[0].value is None
    assert owner.lineage.rebuild(task.entries[0]) is None  # it runs already
    assert task.reruns == 1
    owner.finish(task)
    owner.drop(task)
    assert owner.entries == {}
    assert owner.process.freed == [task.entries[0].object_id]


def test_a_chain_runs_from_the_first_freed_result(owner: Owner) -> None:
    first = owner.task("1")
    second = owner.task("2", first.entries[0])
    third = owner.task("3", second.entries[0])
    owner.drop(first)
    owner.drop(second)
    assert list(owner.entries) == [third.entries[0].object_id]  # lineage keeps tasks, and no values
    assert owner.lineage.rebuild(third.entries[0]) is None
    assert [first.reruns, second.reruns, third.reruns] == [1, 1, 1]
    for task in (first, second, third):
        owner.finish(task)
    assert list(owner.entries) == [third.entries[0].object_id]
    owner.drop(third)
    assert owner.entries == {}


def test_arguments_that_are_there_are_not_made_again(owner: Owner) -> None:
    first = owner.task("1")
    second = owner.task("2", first.entries[0])
    assert owner.lineage.rebuild(second.entries[0]) is None
    assert (first.reruns, second.reruns) == (0, 1)


def test_a_task_lets_go_of_small_arguments_with_its_last_result(owner: Owner) -> None:
    small = owner.process.objects.own(object_name("small"), 1)
    small.value = PLAIN
    task = owner.task("x", small)
    owner.process.objects.release(small)
    assert small.object_id in owner.entries
    owner.drop(task)
    assert owner.entries == {}


def test_what_cannot_be_made_again_says_why(owner: Owner) -> None:
    put = owner.process.objects.own(object_name("put"), 1)
    put.value = LARGE
    never = owner.task("never", retries=0)
    tired = owner.task("tired", retries=1)
    tired.retries = 0
    cancelled = owner.task("cancelled")
    cancelled.cancelled = True
    lost = [put, *never.entries, *tired.entries, *cancelled.entries]
    found = [owner.lineage.rebuild(entry) for entry in lost]
    assert [failure.reason.removeprefix("OBJECT_UNRECONSTRUCTABLE_") for failure in found if failure] == [
        "PUT",
        "RETRIES_DISABLED",
        "MAX_ATTEMPTS_EXCEEDED",
        "TASK_CANCELLED",
    ]


def test_the_oldest_tasks_go_when_their_descriptions_are_too_many() -> None:
    owner = Owner(2 * DESCRIPTION_BYTES)
    tasks = [owner.task(str(number)) for number in range(3)]
    refusal = owner.lineage.rebuild(tasks[0].entries[0])
    assert refusal is not None
    assert refusal.reason.endswith("LINEAGE_EVICTED")
    assert owner.lineage.rebuild(tasks[2].entries[0]) is None


def test_a_borrower_that_finds_no_copy_is_answered_at_once(owner: Owner) -> None:
    task = owner.task("x")
    [entry] = task.entries
    entry.value = Value(STORED, b"", (), (), (NODE, b"m" * 28), 10)
    borrower, here = owner.network.processes[1], owner.process
    link = owner.network.link(here, borrower, True)
    assert link is not None
    owner.lineage.on_lost(link, ObjectLost(entry.object_id, [b"m" * 28]), 1)
    assert entry.value == LARGE
    owner.lineage.on_lost(link, ObjectLost(entry.object_id, [NODE]), 2)
    assert task.reruns == 1
    owner.lineage.on_lost(link, ObjectLost(object_name("unknown"), [NODE]), 3)
    assert list(link.queue) == [("reply", Ok(), number) for number in (1, 2, 3)]


def test_at_the_end_nothing_runs_again(owner: Owner) -> None:
    task = owner.task("x")
    owner.lineage.close()
    refusal = owner.lineage.rebuild(task.entries[0])
    assert refusal is not None
    assert refusal.reason.endswith("LINEAGE_EVICTED")
