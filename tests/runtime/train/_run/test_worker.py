"""How the process of a rank ends a call of the training function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runtime import cloudpickle
from runtime.train._api.context import TrainContext
from runtime.train._core.ranks import Place
from runtime.train._run import session
from runtime.train._run.backend import Backend
from runtime.train._run.worker import Setup, Worker

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
