"""What an agent keeps of its processes, for those who ask after their end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from runtime._node import state_service
from runtime._node.state_service import StateService
from runtime._wire.messages.base import WorkerAddress
from runtime._wire.messages.control import ReportEnded
from runtime._wire.messages.node import TasksTold

PROCESS: Any = SimpleNamespace(
    channel=SimpleNamespace(closed=False),
    address=WorkerAddress(b"w" * 28, b"n" * 28, "/nowhere"),
    job_id=b"\x01\0\0\0",
    pid=7,
    worker=None,
)


@pytest.fixture
def service() -> StateService:
    nobody: Any = None
    return StateService("10.0.0.1", list, nobody, list, list)


def told(*ended: int, pending: tuple[int, ...] = ()) -> TasksTold:
    ended_rows = [{"task_id": str(number), "state": "FINISHED", "ran": ["f", 1.0, 1.0]} for number in ended]
    pending_rows = [{"task_id": str(number), "state": "PENDING_NODE_ASSIGNMENT"} for number in pending]
    encode = msgspec.msgpack.encode
    return TasksTold(len(ended), encode(ended_rows), encode(pending_rows))


def tasks(reports: list[ReportEnded]) -> list[tuple[str, str]]:
    rows = [row for report in reports if report.kind == "tasks" for row in report.rows]
    return [(row["task_id"], row["state"]) for row in rows]


def test_the_tasks_of_a_killed_process_are_reported_once(service: StateService) -> None:
    service.tasks_told(PROCESS, told(1, pending=(2, 3)))
    service.tasks_told(PROCESS, told(2, pending=(3,)))
    reports = service.ended(PROCESS, "killed", False)
    assert tasks(reports) == [("1", "FINISHED"), ("2", "FINISHED"), ("3", "FAILED")]
    assert reports[1].rows[2]["error_type"] == "OWNER_DIED"
    assert "ran" not in reports[1].rows[0]
    assert tasks(service.ended(PROCESS, "killed", False)) == []


def test_a_process_that_has_reported_its_tasks_itself(service: StateService) -> None:
    service.tasks_told(PROCESS, told(1))
    service.tasks_reported(PROCESS)
    (report,) = service.ended(PROCESS, "the driver has left", True)
    assert report.kind == "workers"
    assert report.rows[0]["exit_type"] == "INTENDED_USER_EXIT"


def test_only_the_latest_are_kept(service: StateService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_service, "TOLD_TASKS", 3)
    for first in range(0, 100, 2):
        service.tasks_told(PROCESS, told(first, first + 1))
    reports = service.ended(PROCESS, "killed", False)
    assert [task_id for task_id, _ in tasks(reports)] == ["97", "98", "99"]


def test_nothing_is_kept_of_a_process_that_is_gone(service: StateService) -> None:
    gone = SimpleNamespace(**{**vars(PROCESS), "channel": SimpleNamespace(closed=True)})
    service.tasks_told(gone, told(1))
    assert tasks(service.ended(gone, "killed", False)) == []
