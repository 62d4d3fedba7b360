"""How the process of a rank ends a call of the training function."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from runtime import cloudpickle
from runtime._extension import streams
from runtime.train._api.context import TrainContext
from runtime.train._core.ranks import Place
from runtime.train._core.records import Joined, Returned, Uploaded
from runtime.train._run import session
from runtime.train._run.backend import Backend
from runtime.train._run.worker import Setup, Worker
from tests.polling import eventually

CONTEXT = TrainContext(Place(0, 0, 2, 0, 2, 0), "run")


class Connected(Backend):
    """When it disconnects, the others fail, and this rank is told to leave, too."""

    def leave(self) -> None:
        session.current().leave()


class ToldToLeave(Backend):
    """It is told to leave while the function runs."""

    def join(self, rendezvous: dict[str, Any], context: Any) -> None:
        session.current().leave()


def raises() -> None:
    raise ValueError("on this rank")


def errors_of(backend: Backend, function: Callable[[], Any]) -> list[BaseException]:
    worker = Worker(Setup("run", cloudpickle.dumps(function), cloudpickle.dumps(backend), None, {}, {}, ""))
    own, failure = session.Session(CONTEXT), []  # type: ignore[var-annotated]
    session.enter(own)
    try:
        worker._train(own, {}, failure)
    finally:
        session.enter(None)
    return failure


def test_an_error_is_the_rank_s_though_it_is_told_to_leave_while_it_disconnects() -> None:
    (error,) = errors_of(Connected(), raises)
    assert str(error) == "on this rank"


@pytest.mark.parametrize("backend", [ToldToLeave(), Connected()])
def test_what_the_end_of_connections_has_raised_is_no_error(backend: Backend) -> None:
    def function() -> None:
        if isinstance(backend, ToldToLeave):
            raises()

    assert errors_of(backend, function) == []


class Restless(Backend):
    """When it disconnects, an upload is under way that ends after the function's end was said."""

    def leave(self) -> None:
        own = session.current()

        def upload() -> None:
            assert eventually(lambda: own._has_returned)
            own._send(Uploaded(0, b""), checks=False, waits=False)

        threading.Thread(target=upload).start()


@pytest.mark.timeout(30)
def test_the_end_of_an_upload_after_that_of_the_function_hides_it_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = session.Session.take

    def together(own: session.Session) -> list[Any]:
        assert eventually(lambda: own._outbox.qsize() == 3)
        batch = take(own)
        assert [type(each) for each in batch] == [Joined, Returned, Uploaded]
        return batch

    monkeypatch.setattr(session.Session, "take", together)
    monkeypatch.setattr(streams, "flush", lambda: None)  # this is no actor
    setup = Setup("run", cloudpickle.dumps(raises), cloudpickle.dumps(Restless()), None, {}, {}, "")
    with pytest.raises(ValueError, match="on this rank"):
        list(Worker(setup).run(1, Place(0, 0, 2, 0, 2, 0), None, None, b""))
