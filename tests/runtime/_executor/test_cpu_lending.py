"""What a task that waits gives to others meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from runtime._owner.context import Execution
from runtime._wire.messages.node import Blocked, Unblocked
from runtime._wire.messages.worker import Returned
from tests.runtime._executor.stand_ins import Parts, Peer, push


@pytest.fixture
def parts() -> Parts:
    return Parts()


def test_only_what_runs_on_the_main_thread_holds_cpus(parts: Parts) -> None:
    assert not parts.lending.may_block()
    parts.main.running = Execution(b"t" * 24, "name", "module.name", None)
    assert parts.lending.may_block()
    elsewhere: list[bool] = []
    thread = threading.Thread(target=lambda: elsewhere.append(parts.lending.may_block()))
    thread.start()
    thread.join()
    assert elsewhere == [False]


def test_a_short_wait_lends_nothing(parts: Parts) -> None:
    ready: list[int] = []
    parts.pump.during_waits.append(lambda: ready.append(1))
    assert parts.lending.blocking_wait(lambda: ready, None)
    assert not parts.agent.sent


def test_a_long_wait_lends_the_cpus_and_gives_queued_tasks_back(parts: Parts) -> None:
    caller: Any = Peer()
    parts.calls.waiting.append((caller, push(1)))
    seen: list[bool] = []

    def is_ready() -> bool:
        seen.append(parts.lending.sends_back)
        return parts.lending.sends_back

    assert parts.lending.blocking_wait(is_ready, None)
    assert seen[-1], "meanwhile pushes go back"
    assert caller.sent == [Returned([push(1).task_id], blocked=True)]
    assert parts.agent.sent == [Blocked(), Unblocked()]
    assert not parts.lending.sends_back


def test_an_actor_keeps_its_calls_while_it_waits(parts: Parts) -> None:
    caller: Any = Peer()
    parts.assignment.actor = object()
    parts.calls.waiting.append((caller, push(1)))
    assert not parts.lending.blocking_wait(lambda: False, 60.0)
    assert len(parts.calls.waiting) == 1
    assert parts.agent.sent == [Blocked(), Unblocked()]


def test_a_wait_shorter_than_the_moment_lends_nothing(parts: Parts) -> None:
    assert not parts.lending.blocking_wait(lambda: False, 0.001)
    assert not parts.agent.sent


def test_the_cpus_come_back_when_a_wait_fails(parts: Parts) -> None:
    def fail() -> bool:
        if parts.agent.sent:
            raise RuntimeError("the node is gone")
        return False

    with pytest.raises(RuntimeError):
        parts.lending.blocking_wait(fail, 60.0)
    assert parts.agent.sent == [Blocked(), Unblocked()]
