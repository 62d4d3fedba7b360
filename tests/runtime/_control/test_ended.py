"""What the control store keeps of processes that have ended."""

from __future__ import annotations

from typing import Any

import pytest

from runtime._control import ended
from runtime._control.ended import EndedService
from runtime._transport.channel import CallError
from runtime._wire.messages.control import ListEnded, ReportEnded

NOBODY: Any = None


def test_the_latest_rows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended, "KEPT", {"tasks": 3, "workers": 2})
    service = EndedService()
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
        EndedService().report(NOBODY, ReportEnded("objects", [{}]))
