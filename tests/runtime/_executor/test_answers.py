"""How calls end for their callers."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from runtime import exceptions
from runtime._executor.lifecycle import Stage
from runtime._executor.results import PartialResult
from runtime._owner.context import ActorExit, Execution
from runtime._wire.messages.worker import ActorSetup, Done
from tests.runtime._executor.stand_ins import Exited, Parts, Peer, push

SETUP = ActorSetup(b"a" * 16, 1, "", "", "Class")


class Refusing(Peer):
    """Cannot send results, only errors."""

    def send(self, message: Any) -> None:
        if not message.failed:
            raise OverflowError("too large")
        super().send(message)


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def caller() -> Any:
    return Peer()


@pytest.fixture
def running(parts: Parts, caller: Any) -> Execution:
    return parts.calls.begin(caller, push(1))


@pytest.fixture
def actor(parts: Parts) -> Parts:
    """The same parts, as an actor's."""
    parts.assignment.setup = SETUP
    parts.assignment.actor = object()
    return parts


def test_an_answer_ends_the_call(parts: Parts, caller: Any, running: Execution) -> None:
    done = Done(push(1).task_id, [])
    parts.owner.released.append("a reference")
    parts.answers.answer(caller, done, [])
    assert caller.sent == [done]
    assert parts.calls.is_idle
    assert not parts.owner.released, "what died goes before the answer"


def test_an_answer_waits_until_owners_know_of_the_references(
    parts: Parts, caller: Any, running: Execution
) -> None:
    parts.owner.unknown = ["new"]
    made: Any = ["new", "known"]
    done = Done(push(1).task_id, [])
    parts.answers.answer(caller, done, made)
    assert caller.sent == []
    assert parts.calls.is_idle
    parts.owner.registered.pop()()
    assert caller.sent == [done]


def test_an_answer_that_cannot_be_sent_becomes_an_error(parts: Parts) -> None:
    caller: Any = Refusing()
    parts.answers.answer(caller, Done(push(1).task_id, []), [])
    (done,) = caller.sent
    assert done.failed
    assert "too large" in str(parts.owner.errors[0])


def test_a_dropped_call_is_not_answered(parts: Parts, caller: Any, running: Execution) -> None:
    parts.answers.drop(caller, push(1))
    assert parts.calls.is_idle
    assert not caller.sent


def failure(parts: Parts, running: Execution, error: BaseException, **fields: Any) -> Done | None:
    try:
        raise error
    except BaseException as raised:
        return parts.answers.failed(push(1, **fields), running, raised, 0.5)


def test_an_error_of_user_code_is_the_answer(parts: Parts, running: Execution) -> None:
    done = failure(parts, running, ValueError("no"))
    assert done is not None
    assert done.failed
    assert done.seconds == 0.5
    (error,) = parts.owner.errors
    assert isinstance(error, exceptions.RayTaskError)
    assert isinstance(error.cause, ValueError)
    assert parts.endings.life.stage is Stage.SERVING


@pytest.mark.parametrize(("classes", "retries"), [((ValueError,), True), ((KeyError,), False), ((), False)])
def test_an_error_that_may_be_retried_is_marked(
    parts: Parts, running: Execution, classes: tuple[type, ...], retries: bool
) -> None:
    done = failure(parts, running, ValueError("no"), retry_on=tuple(map(pickle.dumps, classes)))
    assert done is not None
    assert done.retry == retries


def test_an_interrupted_task_was_cancelled(parts: Parts, running: Execution) -> None:
    failure(parts, running, KeyboardInterrupt())
    assert isinstance(parts.owner.errors[0].cause, exceptions.TaskCancelledError)


@pytest.mark.parametrize(
    ("is_async", "error", "is_cancelled"),
    [(True, ValueError(), True), (False, ValueError(), False), (False, asyncio.CancelledError(), True)],
)
def test_what_a_cancelled_call_raises_counts_as_its_cancellation_on_event_loops(
    parts: Parts, running: Execution, is_async: bool, error: BaseException, is_cancelled: bool
) -> None:
    parts.assignment.is_async = is_async
    running.cancelled = True
    failure(parts, running, error)
    assert isinstance(parts.owner.errors[0].cause, exceptions.TaskCancelledError) == is_cancelled


def test_a_task_that_calls_sys_exit_ends_the_process(parts: Parts, running: Execution) -> None:
    with pytest.raises(Exited) as caught:
        failure(parts, running, SystemExit(3))
    assert caught.value.args == ("", 3)


def test_a_call_that_calls_sys_exit_ends_its_actor(actor: Parts, running: Execution) -> None:
    assert failure(actor, running, SystemExit(3), method="call") is None
    life = actor.endings.life
    assert (life.stage, life.reason, life.status) == (Stage.LEAVING, "sys.exit() was called.", 3)


def test_the_call_that_left_is_not_answered(actor: Parts, running: Execution) -> None:
    actor.endings.leave("exit_actor() is called.")
    assert failure(actor, running, ActorExit(0), method="call") is None


def test_a_call_whose_thread_left_is_not_answered_whatever_it_raises(
    actor: Parts, running: Execution
) -> None:
    running.leaves = True
    assert failure(actor, running, ValueError(), method="call") is None


def test_an_actor_that_is_not_constructed_ends(
    parts: Parts, running: Execution, capsys: pytest.CaptureFixture[str]
) -> None:
    parts.assignment.setup = SETUP
    assert failure(parts, running, ValueError("no"), method="__init__") is not None
    assert parts.endings.life.stage is Stage.FINISHING
    assert "creation task" in capsys.readouterr().err


def test_a_generator_that_failed_gives_what_it_had(parts: Parts, caller: Any, running: Execution) -> None:
    call = push(1)
    partial = PartialResult([1, 2], ValueError("no"))
    three = type(call)(*[getattr(call, name) for name in call.__struct_fields__[:5]], 3)
    done = parts.answers.partly_failed(caller, three, running, partial, 0.0)
    assert [value.kind for value in done.values] == [0, 0, 1]
