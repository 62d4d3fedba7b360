"""What a task that waits gives to others meanwhile."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from runtime._executor import cpu_lending
from runtime._executor.cpu_lending import CpuLending
from runtime._executor.main_thread import MainThread
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


# ---------------------------------------------------------------- interrupts


@pytest.fixture
def main(parts: Parts) -> Iterator[MainThread]:
    """The real one: `interrupt` sends a signal."""
    before = signal.getsignal(signal.SIGINT)
    made = MainThread(parts.pump, threading.current_thread())  # type: ignore[arg-type]
    made.running = Execution(b"t" * 24, "name", "module.name", None)
    parts.lending = CpuLending(parts.links, parts.calls, parts.assignment, made)
    yield made
    signal.signal(signal.SIGINT, before)


def interrupted_before(line: int, main: MainThread, wait: Any) -> bool:
    """Runs a wait and interrupts it before the line of that number that it runs. Whether it runs so many."""
    left = line
    outside = sys.gettrace()

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != cpu_lending.__file__:
            return None
        if event == "line":
            left -= 1
            if not left:
                assert main.running is not None
                main.interrupt(main.running)
        return trace

    sys.settrace(trace)
    try:
        wait()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(outside)
    return left <= 0


def test_no_interrupt_leaves_the_cpus_lent(parts: Parts, main: MainThread) -> None:
    line = 1
    while interrupted_before(line, main, lambda: parts.lending.blocking_wait(lambda: False, 60.0)):
        assert parts.agent.sent in ([], [Blocked(), Unblocked()]), line
        assert not parts.lending.sends_back, line
        parts.agent.sent.clear()
        main.hold_back()
        main.let_through()  # nothing is held back any more
        line += 1
    assert line > 20


def test_a_task_that_is_cancelled_while_it_waits_is_interrupted(parts: Parts, main: MainThread) -> None:
    def cancel() -> None:
        if parts.agent.sent:
            assert main.running is not None
            main.interrupt(main.running)

    def is_ready() -> bool:
        cancel()
        return False

    with pytest.raises(KeyboardInterrupt):
        parts.lending.blocking_wait(is_ready, 60.0)
    assert parts.agent.sent == [Blocked(), Unblocked()]


def test_a_thread_that_lends_all_does_not_end_the_lending_of_the_main_thread(parts: Parts) -> None:
    """What the main thread waits for could not run otherwise."""
    lending = parts.lending

    def is_ready() -> bool:
        if lending.sends_back and len(parts.agent.sent) == 1:
            with lending.lent(), lending.lent():
                assert parts.agent.sent[1:] == [Blocked(whole=True)]
            return True
        return False

    assert lending.blocking_wait(is_ready, None)
    assert parts.agent.sent == [Blocked(), Blocked(whole=True), Unblocked(), Blocked(), Unblocked()]


def test_the_main_thread_does_not_end_the_lending_of_a_thread(parts: Parts) -> None:
    with parts.lending.lent():
        assert not parts.lending.blocking_wait(lambda: False, 60.0)
        assert parts.agent.sent == [Blocked(whole=True), Blocked()]
    assert parts.agent.sent[2:] == [Unblocked()]
