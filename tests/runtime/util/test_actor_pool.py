"""`ActorPool`: values go to idle actors, results come in order or as they come."""

from __future__ import annotations

import importlib
import time
from typing import Any

import pytest

from tests.under_test import NAME, exceptions, ray

ActorPool: Any = importlib.import_module(f"{NAME}.util").ActorPool
pytestmark = pytest.mark.usefixtures("session")


@ray.remote(num_cpus=0)
class Worker:
    def double(self, value: int) -> int:
        return 2 * value

    def slow(self, value: float) -> float:
        time.sleep(value)
        return value

    def fail(self, value: int) -> None:
        raise ZeroDivisionError(value)

    @ray.method(num_returns=2)
    def both(self) -> tuple[int, int]:
        return 1, 2

    def end(self) -> None:
        ray.actor.exit_actor()


def pool_of(count: int) -> Any:
    return ActorPool([Worker.remote() for _ in range(count)])


def test_results_in_order() -> None:
    pool = pool_of(2)
    for value in range(5):
        pool.submit(lambda actor, v: actor.double.remote(v), value)
    assert [pool.get_next() for _ in range(5)] == [0, 2, 4, 6, 8]
    assert not pool.has_next()
    with pytest.raises(StopIteration):
        pool.get_next()
    with pytest.raises(StopIteration):
        pool.get_next_unordered()


def test_results_as_they_come() -> None:
    pool = pool_of(2)
    assert list(pool.map_unordered(lambda a, v: a.slow.remote(v), [0.5, 0])) == [0, 0.5]
    assert list(pool.map(lambda a, v: a.slow.remote(v), [0.1, 0])) == [0.1, 0]
    assert sorted(pool.map_unordered(lambda a, v: a.double.remote(v), range(20))) == list(range(0, 40, 2))


def test_map_submits_at_once_and_is_read_later() -> None:
    pool = pool_of(1)
    results = pool.map(lambda a, v: a.double.remote(v), [1, 2, 3])
    assert not pool.has_free()
    assert next(results) == 2
    assert list(results) == [4, 6]


def test_map_forgets_what_was_submitted_before() -> None:
    pool = pool_of(2)
    pool.submit(lambda a, v: a.slow.remote(v), 0.3)
    assert list(pool.map(lambda a, v: a.double.remote(v), [1, 2])) == [2, 4]


def test_in_order_after_as_they_come_is_refused() -> None:
    pool = pool_of(2)
    pool.submit(lambda a, v: a.slow.remote(v), 0.5)
    pool.submit(lambda a, v: a.slow.remote(v), 0)
    assert pool.get_next_unordered() == 0
    with pytest.raises(ValueError, match="get_next_unordered"):
        pool.get_next()
    assert pool.get_next_unordered() == 0.5


def test_time_runs_out() -> None:
    pool = pool_of(1)
    pool.submit(lambda a, v: a.slow.remote(v), 0.4)
    with pytest.raises(TimeoutError):
        pool.get_next(timeout=0.01)
    with pytest.raises(TimeoutError):
        pool.get_next_unordered(timeout=0.01)
    assert pool.get_next(timeout=10) == 0.4
    pool.submit(lambda a, v: a.slow.remote(v), 0.4)
    with pytest.raises(TimeoutError, match="ignored"):
        pool.get_next(timeout=0.01, ignore_if_timedout=True)
    assert not pool.has_next()


def test_an_error_frees_the_actor() -> None:
    pool = pool_of(1)
    pool.submit(lambda a, v: a.fail.remote(v), 1)
    pool.submit(lambda a, v: a.double.remote(v), 1)
    with pytest.raises(ZeroDivisionError):
        pool.get_next()
    assert pool.get_next() == 2
    assert pool.has_free()


def test_a_dead_actor_leaves_the_pool() -> None:
    pool = pool_of(1)
    pool.submit(lambda a, v: a.end.remote(), None)
    with pytest.raises(exceptions.RayActorError):
        pool.get_next()
    assert not pool.has_free()


def test_several_returns() -> None:
    pool = pool_of(2)
    for _ in range(4):
        pool.submit(lambda a, v: a.both.remote(), None)
    assert pool.get_next() == [1, 2]
    assert pool.get_next() == [1, 2]


def test_actors_come_and_go() -> None:
    first, second, third = (Worker.remote() for _ in range(3))
    pool = ActorPool([first])
    pool.submit(lambda a, v: a.double.remote(v), 1)
    assert not pool.has_free()
    assert pool.pop_idle() is None
    with pytest.raises(ValueError, match="already belongs"):
        pool.push(first)
    pool.push(second)
    assert pool.has_free()
    assert pool.pop_idle() == second
    pool.submit(lambda a, v: a.double.remote(v), 2)
    pool.push(third)
    assert not pool.has_free()
    assert [pool.get_next(), pool.get_next()] == [2, 4]
