"""How the ends of a worker process are carried out."""

from __future__ import annotations

import atexit
import logging
import os
from typing import Any

import pytest

from runtime._executor.endings import Endings
from runtime._executor.lifecycle import Stage
from runtime._owner.context import ActorExit, Execution, execution
from runtime._wire.messages.node import WorkerExiting
from runtime._wire.messages.worker import Retiring
from tests.runtime._executor.stand_ins import Concurrent, Exited, Parts, Peer, push


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Parts:
    """Parts whose endings do everything but end the process."""

    def end(status: int) -> None:
        raise Exited(status)

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(atexit, "_run_exitfuncs", lambda: None)
    return Parts(Endings)


def test_leaving_drops_what_waits_and_tells_the_agent(parts: Parts) -> None:
    caller: Any = Peer()
    parts.calls.waiting.append((caller, push(1)))
    parts.endings.leave("enough", 3)
    assert not parts.calls.waiting
    assert parts.agent.calls == [WorkerExiting("Worker exits with an exit code 3. enough", False)]
    assert parts.pump.woken, "the main thread looks whether to exit"
    assert parts.endings.may_exit()


def test_leaving_marks_the_call_that_leaves(parts: Parts) -> None:
    running = Execution(b"t" * 24, "name", "module.name", None)
    token = execution.set(running)
    try:
        with pytest.raises(ActorExit):
            parts.endings.terminate()
    finally:
        execution.reset(token)
    assert running.leaves
    assert running.cancelled


def test_an_actor_that_leaves_waits_for_the_calls_beside(parts: Parts) -> None:
    parts.endings.concurrent = concurrent = Concurrent()
    caller: Any = Peer()
    parts.calls.begin(caller, push(1))
    parts.endings.leave("enough")
    assert (concurrent.dropped, concurrent.looked) == (1, 1)
    parts.endings.exit_if_idle()
    parts.calls.end(caller, push(1).task_id)
    with pytest.raises(Exited):
        parts.endings.exit_if_idle()


def test_a_worker_that_serves_does_not_exit(parts: Parts) -> None:
    parts.endings.exit_if_idle()
    assert not parts.endings.may_exit()


def test_an_actor_without_handles_exits_when_nothing_is_left(parts: Parts) -> None:
    parts.endings.concurrent = concurrent = Concurrent()
    parts.endings.unreferenced()
    assert concurrent.looked == 1
    with pytest.raises(Exited):
        parts.endings.exit_if_idle()


def test_the_agent_hears_of_the_last_call_before_it_is_answered(parts: Parts) -> None:
    parts.owner.functions.max_calls[b"f"] = 2
    assert not parts.endings.is_last_call(b"unlimited")
    assert not parts.endings.is_last_call(b"f")
    assert not parts.pump.asked
    assert parts.endings.is_last_call(b"f")
    assert parts.pump.asked == [WorkerExiting()]


def test_a_retired_worker_exits_when_nobody_needs_it(parts: Parts) -> None:
    caller: Any = Peer()
    needed = [True]
    parts.pump.during_waits.append(needed.clear)
    with pytest.raises(Exited, match="max_calls"):
        parts.endings.retire(caller, b"f", lambda: bool(needed))
    assert caller.sent == [Retiring()]
    assert not needed


def test_a_retired_worker_sends_its_last_answer_before_it_exits(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer waits until the owners know of what is kept here, although nobody needs anything of this worker."""
    caller: Any = Peer()
    monkeypatch.setattr(parts.owner, "when_all_registered", parts.pump.during_waits.append)
    with pytest.raises(Exited, match="max_calls"):
        parts.endings.retire(caller, b"f", lambda: False)
    assert caller.sent == [Retiring()]


def test_an_exit_says_why_and_sends_everything(real: Parts) -> None:
    real.endings.leave("enough", 3)
    with pytest.raises(Exited) as caught:
        real.endings.exit()
    assert caught.value.args == (3,)
    assert real.pump.asked == [WorkerExiting("Worker exits with an exit code 3. enough", False)]
    assert real.pump.flushed >= 2
    assert real.endings.life.stage is Stage.EXITING


def test_an_exit_without_a_reason_of_its_own_says_nothing(real: Parts) -> None:
    with pytest.raises(Exited) as caught:
        real.endings.exit(7)
    assert caught.value.args == (7,)
    assert not real.pump.asked


def test_the_last_handler_of_the_actor_runs_and_may_be_a_coroutine(real: Parts) -> None:
    class Actor:
        async def __ray_shutdown__(self) -> None: ...

    real.assignment.actor = Actor()
    real.endings.concurrent = concurrent = Concurrent()
    with pytest.raises(Exited):
        real.endings.exit()
    assert len(concurrent.finished) == 1
    assert real.assignment.actor is None


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_a_last_handler_that_raises_does_not_stop_the_exit(
    real: Parts, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    class Actor:
        def __ray_shutdown__(self) -> None:
            raise error

    real.assignment.actor = Actor()
    with caplog.at_level(logging.ERROR), pytest.raises(Exited):
        real.endings.exit()
    assert "__ray_shutdown__" in caplog.text


def test_a_last_handler_that_ends_the_actor_again_changes_nothing(real: Parts) -> None:
    class Actor:
        def __ray_shutdown__(self) -> None:
            real.endings.terminate("again")

    real.assignment.actor = Actor()
    real.endings.leave("first", 3)
    with pytest.raises(Exited) as caught:
        real.endings.exit()
    assert caught.value.args == (3,)
    assert real.endings.life.reason == "first"


def test_a_cancelled_task_that_will_not_end_ends_the_process(real: Parts) -> None:
    with pytest.raises(Exited) as caught:
        real.endings.abort("its task was cancelled")
    assert caught.value.args == (1,)
    assert real.agent.sent == [WorkerExiting("its task was cancelled")]
