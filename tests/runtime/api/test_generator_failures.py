"""Generators that fail: errors, crashes, retries, cancellation and early ends."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

import pytest

from tests.polling import eventually
from tests.runtime.api.streams import AsyncStreams, Streams, count, drain
from tests.under_test import OWN, exceptions, ray

pytestmark = pytest.mark.usefixtures("session")


def test_a_crash_without_retries_is_the_last_item() -> None:
    @ray.remote(max_retries=0)
    def crash() -> Any:
        yield from range(3)
        os._exit(1)

    gen = crash.remote()
    *values, error = drain(gen)
    assert values == [0, 1, 2] or not OWN  # the other engine may lose the last ones
    assert exceptions.WorkerCrashedError in error
    with pytest.raises(exceptions.WorkerCrashedError):
        ray.get(gen.completed())
    assert gen.is_finished()


@pytest.mark.parametrize("crashes", [True, False])
def test_a_retry_gives_each_item_once(tmp_path: pathlib.Path, crashes: bool) -> None:
    @ray.remote(max_retries=1, retry_exceptions=True)
    def twice(path: str) -> Any:
        first = not os.path.exists(path)
        pathlib.Path(path).touch()
        for i in range(5):
            if first and i == 3:
                if crashes:
                    os._exit(1)
                raise ValueError("once")
            yield i, first

    values = drain(twice.remote(str(tmp_path / "began")))
    assert [i for i, _ in values] == list(range(5))
    assert values[-1] == (4, False)


def test_no_retry_for_errors_unless_asked_for(tmp_path: pathlib.Path) -> None:
    *values, error = drain(count.options(max_retries=3).remote(3, 2))
    assert values == [0, 1]
    assert ValueError in error


def test_an_actor_that_dies_in_the_middle() -> None:
    actor = Streams.remote()
    *values, error = drain(actor.crash.remote(3))
    assert values == [0, 1, 2] or not OWN
    assert exceptions.ActorDiedError in error


def test_an_actor_that_is_killed_in_the_middle() -> None:
    actor = Streams.remote()
    gen = actor.endless.remote()
    assert ray.get(next(gen)) == 0
    ray.kill(actor)
    assert exceptions.RayActorError in drain(gen)[-1]


@pytest.mark.parametrize("cls", [Streams, AsyncStreams])
def test_a_cancelled_call_ends_at_a_yield(cls: Any) -> None:
    gen = cls.remote().endless.remote()
    assert ray.get(next(gen)) == 0
    ray.cancel(gen)
    assert exceptions.TaskCancelledError in drain(gen)[-1]
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(gen.completed())


@pytest.mark.parametrize("force", [False, True])
def test_a_cancelled_task(force: bool) -> None:
    @ray.remote
    def slow() -> Any:
        yield 0
        time.sleep(60)

    gen = slow.remote()
    assert ray.get(next(gen)) == 0
    ray.cancel(gen, force=force)
    assert ray.wait([gen], timeout=30) == ([gen], [])
    assert {exceptions.TaskCancelledError, exceptions.WorkerCrashedError} & set(drain(gen)[-1])
    assert gen.is_finished()


def test_an_argument_that_failed() -> None:
    @ray.remote
    def bad() -> int:
        raise KeyError("argument")

    [error] = drain(count.remote(bad.remote()))
    assert KeyError in error


# ---------------------------------------------------------------- early ends


def test_a_dropped_generator_runs_to_its_end(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "done"

    @ray.remote(_generator_backpressure_num_objects=1)
    def long(path: str) -> Any:
        for i in range(50):
            yield bytes([i]) * 200_000
        pathlib.Path(path).touch()

    gen = long.remote(str(path))
    assert ray.get(next(gen))[0] == 0
    del gen
    assert eventually(path.exists)


def test_a_caller_that_dies_does_not_stop_the_actor() -> None:
    actor = Streams.remote()

    @ray.remote(max_retries=0)
    def caller(actor: Any) -> None:
        gen = actor.plain.options(_generator_backpressure_num_objects=1).remote(10)
        ray.get(next(gen))
        os._exit(1)

    with pytest.raises(exceptions.WorkerCrashedError):
        ray.get(caller.remote(actor))
    assert ray.get(actor.ping.remote(), timeout=30) == "pong"
