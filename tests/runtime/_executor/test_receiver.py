"""What a worker does with each message of its callers and its agent."""

from __future__ import annotations

import pytest

from runtime import exceptions
from runtime._wire.messages.base import ErrorKind, Ok
from runtime._wire.messages.node import MayEnd
from runtime._wire.messages.worker import BindLease, Cancel, Done, ExitActor, Returned, TakeBack
from tests.runtime._executor.stand_ins import Concurrent, Exited, Parts, Peer, push


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def caller() -> Peer:
    return Peer()


def test_a_push_waits_for_the_main_thread(parts: Parts, caller: Peer) -> None:
    parts.tell(caller, push(1))
    assert [item[1].task_id for item in parts.calls.waiting] == [push(1).task_id]
    assert not parts.calls.begun


def test_a_push_goes_back_while_the_task_before_it_waits(parts: Parts, caller: Peer) -> None:
    parts.lending.sends_back = True
    parts.tell(caller, push(1))
    assert caller.sent == [Returned([push(1).task_id], blocked=True)]


def test_a_process_that_ends_takes_no_push_and_does_not_answer(parts: Parts, caller: Peer) -> None:
    parts.endings.life.leave("why")
    parts.tell(caller, push(1))
    assert not parts.calls.waiting
    assert not caller.sent


def test_an_actor_without_handles_still_takes_what_was_on_its_way(parts: Parts, caller: Peer) -> None:
    parts.tell(Peer(), ExitActor())
    parts.tell(caller, push(1))
    assert len(parts.calls.waiting) == 1
    assert not parts.endings.may_exit()


def test_calls_that_came_before_the_actor_run_beside_each_other_too(parts: Parts, caller: Peer) -> None:
    parts.tell(caller, push(1))
    concurrent = Concurrent()
    parts.receiver.pass_on(concurrent)
    parts.tell(caller, push(2))
    assert [one.task_id[0] for one in concurrent.submitted] == [1, 2]
    assert len(parts.calls.begun) == 2


def test_pushes_are_taken_back(parts: Parts, caller: Peer) -> None:
    parts.tell(caller, push(1))
    parts.tell(caller, push(2))
    parts.tell(caller, TakeBack(1))
    assert caller.sent == [Returned([push(2).task_id])]


def test_a_lease_binds_the_tasks_to_come(parts: Parts) -> None:
    lease = BindLease(b"lease", {"CPU": 10_000}, [])
    parts.tell(Peer(), lease)
    assert parts.assignment.lease is lease


def test_a_task_that_waits_is_cancelled_at_once(parts: Parts, caller: Peer) -> None:
    parts.tell(caller, push(1))
    parts.tell(caller, Cancel(push(1).task_id, False, True))
    (done,) = caller.sent
    assert isinstance(done, Done)
    assert done.failed
    assert isinstance(parts.owner.errors[0], exceptions.TaskCancelledError)
    assert not parts.calls.waiting
    assert not parts.owner.cancelled, "what has not begun has no children"


def test_a_task_that_runs_is_interrupted_with_its_children(parts: Parts, caller: Peer) -> None:
    running = parts.calls.begin(caller, push(1))  # type: ignore[arg-type]
    parts.tell(caller, Cancel(push(1).task_id, False, True))
    assert running.cancelled
    assert parts.main.interrupted == [running]
    assert parts.owner.cancelled == [(push(1).task_id, False)]


@pytest.mark.parametrize("force", [False, True])
def test_a_task_is_interrupted_before_its_children_are_cancelled_and_ends_after_that(
    parts: Parts, caller: Peer, force: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(parts.main, "interrupt", lambda _running: steps.append("interrupt"))
    monkeypatch.setattr(parts.endings, "abort", lambda _reason: steps.append("end"))
    monkeypatch.setattr(parts.owner, "cancel_children", lambda *_: steps.append("children"))
    parts.calls.begin(caller, push(1))  # type: ignore[arg-type]
    parts.tell(caller, Cancel(push(1).task_id, force, True))
    assert steps == (["children", "end"] if force else ["interrupt", "children"])


def test_a_forced_cancellation_ends_the_process(parts: Parts, caller: Peer) -> None:
    parts.calls.begin(caller, push(1))  # type: ignore[arg-type]
    with pytest.raises(Exited, match="its task was cancelled"):
        parts.tell(caller, Cancel(push(1).task_id, True, False))


def test_a_call_of_a_sync_actor_is_only_marked(parts: Parts, caller: Peer) -> None:
    parts.assignment.actor = object()
    running = parts.calls.begin(caller, push(1, "method"))  # type: ignore[arg-type]
    parts.tell(caller, Cancel(push(1).task_id, True, False))
    assert running.cancelled
    assert not parts.main.interrupted


def test_a_call_that_runs_beside_others_is_cancelled_there(parts: Parts, caller: Peer) -> None:
    parts.endings.concurrent = concurrent = Concurrent()
    parts.calls.begin(caller, push(1, "method"))  # type: ignore[arg-type]
    parts.tell(caller, Cancel(push(1).task_id, False, False))
    assert concurrent.cancelled == [push(1).task_id]


def test_another_callers_cancellation_of_the_same_id_changes_nothing(parts: Parts, caller: Peer) -> None:
    running = parts.calls.begin(caller, push(1))  # type: ignore[arg-type]
    parts.tell(Peer(), Cancel(push(1).task_id, True, False))
    assert not running.cancelled


@pytest.mark.parametrize("reason", ["a task waits", "others hold what it owns", "nothing"])
def test_a_worker_says_whether_it_may_end(parts: Parts, caller: Peer, reason: str) -> None:
    if reason == "a task waits":
        parts.tell(caller, push(1))
    parts.owner.needed = reason == "others hold what it owns"
    agent = Peer()
    parts.tell(agent, MayEnd(), 5)
    ((reply, correlation),) = agent.replies
    assert correlation == 5
    assert isinstance(reply, Ok) if reason == "nothing" else reply.kind == ErrorKind.BUSY


def test_what_a_lost_caller_queued_does_not_run(parts: Parts, caller: Peer) -> None:
    parts.tell(caller, push(1))
    parts.receiver.connection_lost(caller)  # type: ignore[arg-type]
    assert parts.calls.is_idle
