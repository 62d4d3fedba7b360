"""What this process knows of tasks and objects, for those who ask (`runtime.util.state`): the tasks it has submitted,
the last of them after their end too, and the objects it refers to.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from runtime import exceptions
from runtime._core import ids
from runtime._core.row_filters import chosen
from runtime._core.tasks import TaskState
from runtime._ownership.records import Entry
from runtime._transport.connection import Connection
from runtime._wire import serialization
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.control import ReportEnded
from runtime._wire.messages.node import ListState, StateRows, TasksTold, WorkerExiting

from .links import Links
from .reading import Reader

if TYPE_CHECKING:
    from runtime._ownership.records import Submission

log = logging.getLogger("runtime")
KEPT_TASKS = 10_000
REPORTED_TASKS = 1_000
"""So many tasks of a process that ends stay known."""
REPORT_S = 2.0
TOLD_TASKS = 200
"""So many tasks of a process that is killed stay known."""
TELL_S = 2.0
"""How often the agent is told of new ones."""
_MAX_ERROR_BYTES = 16 * 1024
_STATES = {
    TaskState.WAITING_FOR_ARGUMENTS: "PENDING_ARGS_AVAIL",
    TaskState.QUEUED: "PENDING_NODE_ASSIGNMENT",
    TaskState.PUSHED: "SUBMITTED_TO_WORKER",
    TaskState.CANCELLING: "RUNNING",
    TaskState.CRASHED: "RUNNING",
    TaskState.FINISHED: "FINISHED",
}
_ERROR_TYPES: tuple[tuple[type[BaseException], str], ...] = (
    (exceptions.TaskCancelledError, "TASK_CANCELLED"),
    (exceptions.WorkerCrashedError, "WORKER_DIED"),
    (exceptions.NodeDiedError, "NODE_DIED"),
    (exceptions.OutOfMemoryError, "OUT_OF_MEMORY"),
    (exceptions.ActorUnavailableError, "ACTOR_UNAVAILABLE"),
    (exceptions.RayActorError, "ACTOR_DIED"),
    (exceptions.RuntimeEnvSetupError, "RUNTIME_ENV_SETUP_FAILED"),
    (exceptions.TaskPlacementGroupRemoved, "TASK_PLACEMENT_GROUP_REMOVED"),
    (exceptions.TaskUnschedulableError, "TASK_UNSCHEDULABLE_ERROR"),
    (exceptions.OwnerDiedError, "OWNER_DIED"),
    (exceptions.ObjectLostError, "OBJECT_LOST"),
)


class Agent(Protocol):
    """Takes what is told."""

    def send(self, message: TasksTold) -> None:
        """Sends it, without waiting."""


class EndedTask(NamedTuple):
    """One attempt that is over."""

    task_id: bytes
    name: str  # the user's, or ""
    function_name: str
    attempt: int
    parent: bytes
    worker: WorkerAddress | None
    failed: bool
    error: bytes  # the serialized exception
    created_s: float
    ended_s: float
    seconds: float  # in user code


class Span(NamedTuple):
    """What user code has measured of itself, for `timeline`."""

    name: str
    began_s: float
    ended_s: float
    extra: dict[str, Any]


class History:
    """The last tasks of this process. `ended` is on the path of every task: it keeps a tuple and nothing else.

    Args:
        entries: the object table.
        pending: the tasks that have not ended.
        reader: describes errors on its threads.
        running: returns the ids of the tasks that run in this process; False for a call that waits for others of its
            actor.
        site_of: see `TaskIds.site_of`.
    """

    def __init__(
        self,
        links: Links,
        is_driver: bool,
        entries: Mapping[bytes, Entry],
        pending: dict[bytes, Submission],
        reader: Reader,
        running: Callable[[], Iterable[tuple[bytes, bool]]],
        site_of: Callable[[bytes], str],
    ) -> None:
        self._links = links
        self._is_driver = is_driver
        self._entries = entries
        self._pending = pending
        self._reader = reader
        self._running = running
        self._site_of = site_of
        self._driver_task = b"\xff" * (ids.TASK_BYTES - ids.JOB_BYTES) + links.session.job_id
        # Tuples of an EndedTask's fields: making the plain tuple costs half as much, and as nothing in it can refer to
        # a container, the garbage collector does not visit it again and again.
        self._ended: deque[tuple[Any, ...]] = deque(maxlen=KEPT_TASKS)
        self.spans: deque[Span] = deque(maxlen=KEPT_TASKS)
        # What had ended last and how many were pending, when we told of it.
        self._told: tuple[tuple[Any, ...] | None, int] = None, 0
        self._due_s = 0.0  # when to tell again; 0: there was no news

    def ended(self, task: Submission, failed: bool, error: bytes = b"", seconds: float = 0.0) -> None:
        """An attempt is over; it was in user code for so long."""
        push = task.push
        self._ended.append(
            (
                push.task_id,
                push.name,
                task.function_name,
                push.attempt,
                task.parent,
                task.worker,
                failed,
                error if len(error) <= _MAX_ERROR_BYTES else b"",
                task.created_s,
                time.time(),
                seconds,
            )
        )

    @property
    def has_news(self) -> bool:
        """Whether `tick` will tell of something."""
        return self._latest() != self._told

    def tick(self, agent: Agent, now: float) -> None:
        """Tells the agent of the latest tasks, if there are new ones and it is time. Under the lock."""
        if not self.has_news:
            self._due_s = 0.0
        elif not self._due_s:
            self._due_s = now + TELL_S
        elif now >= self._due_s:
            self._due_s = now + TELL_S
            self._tell(agent)

    def _latest(self) -> tuple[tuple[Any, ...] | None, int]:
        return self._ended[-1] if self._ended else None, len(self._pending)

    def _tell(self, agent: Agent) -> None:
        last, _ = self._told
        self._told = self._latest()
        ended: list[tuple[Any, ...]] = []
        for task in reversed(self._ended):
            if task is last or len(ended) == TOLD_TASKS:
                break
            ended.append(task)
        rows = [self._ended_row(EndedTask(*task)) for task in reversed(ended)]
        for row in rows:
            row.pop(
                "error_message", None
            )  # to rebuild an error would run the user's code, and make references
        pending = [self._pending_row(task) for task in islice(self._pending.values(), TOLD_TASKS)]
        agent.send(TasksTold(len(rows), msgspec.msgpack.encode(rows), msgspec.msgpack.encode(pending)))

    def on_list(self, connection: Connection, message: ListState, correlation: int) -> None:
        """The node agent asks."""
        rows = {"tasks": self._task_rows, "objects": self._object_rows, "spans": self._span_rows}.get(
            message.kind
        )
        found = chosen(rows() if rows is not None else [], message.filters, message.limit)
        unread = [row for row in found if isinstance(row.get("error_message"), bytes)]
        if not unread:
            connection.reply(StateRows(found), correlation)
            return

        def describe() -> None:
            try:
                _describe(unread)
            finally:
                connection.reply(StateRows(found), correlation)

        # To rebuild an error runs the user's code: not here, under the lock.
        self._reader.load_in_thread(describe)

    def last_rows(self) -> list[dict[str, Any]]:
        """The latest tasks of a process that is about to end: those that have not ended fail with it. Runs user code,
        which describes errors, so it must not hold the lock."""
        with self._links.lock:
            pending = list(self._pending.values())
        rows = [self._ended_row(EndedTask(*ended)) for ended in list(self._ended)[-REPORTED_TASKS:]]
        for row in rows:
            row.pop("ran", None)
        _describe([row for row in rows if "error_message" in row])
        now = int(time.time() * 1000)
        for task in pending[:REPORTED_TASKS]:
            row = self._pending_row(task) | {
                "state": "FAILED",
                "error_type": "OWNER_DIED",
                "end_time_ms": now,
            }
            rows.append(row)
        return rows[-REPORTED_TASKS:]

    def report(self) -> None:
        """Tells the cluster of the latest tasks, as the process is about to end."""
        try:
            if self._is_driver:
                self._links.agent.send(WorkerExiting("the driver has left"))
            rows = self.last_rows()
            if rows:
                self._links.call_agent(ReportEnded("tasks", rows), REPORT_S)
        except Exception as error:
            log.debug("the last tasks are not reported: %s", error)

    def _pending_row(self, task: Submission) -> dict[str, Any]:
        push = task.push
        row = self._row(push.task_id, push.name, task.function_name, push.attempt, task.parent)
        return {**row, "creation_time_ms": int(task.created_s * 1000), "state": _STATES[task.state]}

    def _task_rows(self) -> list[dict[str, Any]]:
        rows = [self._ended_row(EndedTask(*ended)) for ended in list(self._ended)]
        rows += [self._pending_row(task) for task in list(self._pending.values())]
        where = self._where()
        rows += [
            {"task_id": task_id.hex(), "running": True, "waits": not runs, **where}
            for task_id, runs in self._running()
        ]
        return rows

    def _where(self) -> dict[str, str]:
        address = self._links.address
        return {"worker_id": address.worker_id.hex(), "node_id": address.node_id.hex()}

    def _row(
        self, task_id: bytes, name: str, function_name: str, attempt: int, parent: bytes
    ) -> dict[str, Any]:
        actor_id = ids.actor_id_of(task_id)
        short = function_name.rpartition(".")[2]
        is_call = ids.is_actor(actor_id)
        return {
            "task_id": task_id.hex(),
            "attempt_number": attempt,
            "name": name or short,
            "job_id": task_id[-ids.JOB_BYTES :].hex(),
            "actor_id": actor_id.hex() if is_call else None,
            "type": "ACTOR_TASK" if is_call else "NORMAL_TASK",
            "func_or_class_name": name if is_call else short,
            "parent_task_id": (parent or self._driver_task).hex(),
        }

    def _ended_row(self, ended: EndedTask) -> dict[str, Any]:
        row = self._row(ended.task_id, ended.name, ended.function_name, ended.attempt, ended.parent)
        row["state"] = "FAILED" if ended.failed else "FINISHED"
        row["creation_time_ms"] = int(ended.created_s * 1000)
        row["end_time_ms"] = int(ended.ended_s * 1000)
        if ended.worker is not None:  # else it never ran
            row["start_time_ms"] = int((ended.ended_s - ended.seconds) * 1000)
            row["ran"] = (ended.function_name, ended.ended_s, ended.seconds)
        if ended.worker is not None:
            row["worker_id"] = ended.worker.worker_id.hex()
            row["node_id"] = ended.worker.node_id.hex()
        if ended.failed:
            row["error_message"] = ended.error  # for now, see `on_list`
        return row

    def _span_rows(self) -> list[dict[str, Any]]:
        where = self._where()
        return [{**span._asdict(), **where, "is_driver": self._is_driver} for span in list(self.spans)]

    def _object_rows(self) -> list[dict[str, Any]]:
        with self._links.lock:
            entries = list(self._entries.values())
        rows = []
        for entry in entries:
            value = entry.value
            size = -1
            if value is not None:
                size = value.size_bytes or value.inline_bytes
            kind = "LOCAL_REFERENCE" if entry.owner is None else "BORROWED"
            if entry.object_id.startswith(ids.CREATION_PREFIX):
                kind = "ACTOR_HANDLE"
            rows.append(
                {
                    "object_id": entry.object_id.hex(),
                    "object_size": size,
                    "task_status": "FINISHED" if value is not None else "PENDING_NODE_ASSIGNMENT",
                    "attempt_number": 1,
                    "reference_type": kind,
                    "call_site": self._site_of(entry.object_id) or "disabled",
                    "type": "DRIVER" if self._is_driver else "WORKER",
                }
            )
        return rows


def _describe(rows: Iterable[dict[str, Any]]) -> None:
    """Puts the type and text of errors in the place of the serialized ones. Runs the user's code."""
    for row in rows:
        row["error_type"], row["error_message"] = _described(row["error_message"])


def _described(error: bytes) -> tuple[str, str]:
    """The type of an error by Ray's names, and its message."""
    if not error:
        return "TASK_EXECUTION_EXCEPTION", ""
    try:
        with serialization.not_borrowing():
            raised, _ = serialization.deserialize(error)
            name = next(
                (name for cls, name in _ERROR_TYPES if isinstance(raised, cls)), "TASK_EXECUTION_EXCEPTION"
            )
            return name, str.__str__(str(raised))  # no subclass of str: a message cannot hold it
    except BaseException as problem:  # it is the user's code, which may raise SystemExit too
        reason = "".join(traceback.format_exception_only(problem)).strip()  # even if its `__str__` raises
        return "TASK_EXECUTION_EXCEPTION", f"the error cannot be read here: {reason}"
