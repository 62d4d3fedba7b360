"""What a process tells of its tasks; errors are described whatever the user's exception classes do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from runtime import object_ref
from runtime._core.tasks import TaskState
from runtime._owner import history
from runtime._owner.history import _described
from runtime._wire import serialization
from runtime._wire.messages.node import TasksTold
from tests.runtime._owner.lone_process import OWNER, LoneProcess


def leave() -> None:
    raise SystemExit(3)


class Leaves(Exception):
    """Leaves the process that rebuilds it."""

    def __reduce__(self) -> tuple[object, ...]:
        return leave, ()


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class LeavesWhenAsked(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class RaisesItself(Exception):
    def __str__(self) -> str:
        raise self


class Markup(str):
    __slots__ = ()


class Marked(Exception):
    def __str__(self) -> str:
        return Markup("marked")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Leaves(), "SystemExit: 3"),
        (Silent(), "RuntimeError: no text"),
        (LeavesWhenAsked(), "SystemExit: 3"),
        (RaisesItself(), "RaisesItself: <exception str() failed>"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_that_cannot_be_described(error: Exception, reason: str) -> None:
    name, message = _described(serialization.serialize(error).data)
    assert name == "TASK_EXECUTION_EXCEPTION"
    assert message.startswith("the error cannot be read here: ")
    assert message.endswith(reason)


def test_an_error_is_described() -> None:
    data = serialization.serialize(ValueError("bad luck")).data
    assert _described(data) == ("TASK_EXECUTION_EXCEPTION", "bad luck")


class ShowsReference(Exception):
    def __str__(self) -> str:
        return repr(self.args[0])


def test_references_in_an_error_that_is_described_are_not_borrowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What kept their objects while the error was on its way may be gone."""
    process = LoneProcess()
    monkeypatch.setattr(object_ref, "_current", lambda: process)
    monkeypatch.setattr(object_ref, "_current_or_none", lambda: process)
    entry = process.objects.entry_of(b"o" * 28, OWNER)
    ref = process.objects.new_ref(entry)
    data = serialization.serialize(ShowsReference(ref)).data
    del ref, entry
    process.objects.drain()
    assert process.objects.table.entries == {}
    sent = [list(peer.sent) for peer in process.others.values()]
    assert _described(data) == ("TASK_EXECUTION_EXCEPTION", f"ObjectRef({'6f' * 28})")
    process.objects.drain()
    assert process.objects.table.entries == {}
    assert [list(peer.sent) for peer in process.others.values()] == sent
    assert serialization.collector.borrows


def test_a_text_of_a_class_of_its_own_becomes_a_plain_one() -> None:
    _, message = _described(serialization.serialize(Marked()).data)
    assert message == "marked"
    assert type(message) is str


class Agent:
    def __init__(self) -> None:
        self.told: list[tuple[list[str], list[str]]] = []

    def send(self, message: TasksTold) -> None:
        rows = [msgspec.msgpack.decode(each) for each in (message.ended, message.pending)]
        assert message.count == len(rows[0])
        self.told.append(([row["task_id"] for row in rows[0]], [row["task_id"] for row in rows[1]]))


def a_task(number: int) -> Any:
    return SimpleNamespace(
        push=SimpleNamespace(task_id=bytes([number]) * 24, name="", attempt=0),
        function_name="f",
        parent=b"",
        worker=None,
        created_s=0.0,
        state=TaskState.QUEUED,
    )


def test_the_agent_is_told_now_and_then_of_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "TOLD_TASKS", 3)
    links: Any = SimpleNamespace(session=SimpleNamespace(job_id=b"\1\0\0\0"))
    nobody: Any = None
    pending: dict[bytes, Any] = {}
    agent = Agent()
    known = history.History(links, True, {}, pending, nobody, list, str)
    names = [a_task(number).push.task_id.hex() for number in range(6)]

    known.tick(agent, 1.0)
    assert not known.has_news
    pending[b"0"] = a_task(0)
    known.tick(agent, 1.0)
    known.tick(agent, 2.9)
    assert agent.told == [], "what came last may be over soon"
    known.tick(agent, 3.0)
    assert agent.told == [([], [names[0]])]
    known.tick(agent, 60.0)
    assert len(agent.told) == 1, "there is nothing new"
    del pending[b"0"]
    for number in range(5):
        known.ended(a_task(number), failed=False)
    pending[b"5"] = a_task(5)
    assert known.has_news
    known.tick(agent, 70.0)
    known.tick(agent, 72.0)
    assert agent.told[1:] == [(names[2:5], [names[5]])], "the last ones"
    assert not known.has_news
