"""What the control store keeps of processes that have ended."""

from __future__ import annotations

from typing import Any

import pytest

from runtime._control import ended, events
from runtime._control.ended import EndedService
from runtime._control.events import ClusterEvents
from runtime._transport.channel import CallError
from runtime._wire.messages.control import AutoscalerReport, ListEnded, ReportEnded

NOBODY: Any = None


def test_the_latest_rows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended, "KEPT", {"tasks": 3, "workers": 2})
    service = EndedService(ClusterEvents(lambda: 0.0))
    for number in range(5):
        service.report(
            NOBODY, ReportEnded("tasks", [{"task_id": str(number), "name": "a" if number % 2 else "b"}])
        )
    rows = service.list_ended(NOBODY, ListEnded("tasks")).rows
    assert [row["task_id"] for row in rows] == ["2", "3", "4"]
    chosen = service.list_ended(NOBODY, ListEnded("tasks", [("name", "=", "b")], 1)).rows
    assert [row["task_id"] for row in chosen] == ["2"]
    assert service.list_ended(NOBODY, ListEnded("workers")).rows == []
    assert service.list_ended(NOBODY, ListEnded("objects")).rows == []


def test_rows_of_another_kind_are_refused() -> None:
    with pytest.raises(CallError, match="nothing is kept of 'objects'"):
        EndedService(ClusterEvents(lambda: 0.0)).report(NOBODY, ReportEnded("objects", [{}]))


def worker(kind: str, exit_type: str) -> dict[str, Any]:
    return {
        "worker_id": "w1",
        "worker_type": kind,
        "exit_type": exit_type,
        "exit_detail": "killed by signal 9",
        "job_id": "01000000",
        "node_id": "n1",
        "ip": "10.0.0.1",
        "pid": 7,
    }


def test_processes_that_crashed_are_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEPT", 2)
    service = EndedService(ClusterEvents(lambda: 0.0))
    ends = [worker("WORKER", "INTENDED_USER_EXIT"), *[worker("WORKER", "SYSTEM_ERROR")] * 2]
    service.report(NOBODY, ReportEnded("workers", ends))
    service.report(NOBODY, ReportEnded("workers", [worker("DRIVER", "SYSTEM_ERROR")]))
    rows = service.list_ended(NOBODY, ListEnded("cluster_events")).rows
    assert [row["message"] for row in rows] == [
        f"{kind} w1 died. Address: 10.0.0.1, Pid: 7, JobId: 01000000. killed by signal 9"
        for kind in ("Worker", "Driver")
    ]
    assert {row["severity"] for row in rows} == {"ERROR"}
    assert rows[0]["custom_fields"] == {"job_id": "01000000", "node_id": "n1", "worker_id": "w1"}
    assert rows[0]["event_id"] != rows[1]["event_id"]


def test_what_the_autoscaler_says_again_is_no_event() -> None:
    happened = ClusterEvents(lambda: 0.0)
    for notes in (
        [("{CPU: 100}", "too large")],
        [("{CPU: 100}", "too large"), ("{GPU: 1}", "no type has it")],
    ):
        happened.learn(AutoscalerReport(b"", notes))
    assert [row["message"] for row in happened.rows] == ["{CPU: 100}: too large", "{GPU: 1}: no type has it"]
