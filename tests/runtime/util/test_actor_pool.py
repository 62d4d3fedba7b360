"""`ActorPool`: values go to idle actors, results come in order or as they come."""

from __future__ import annotations

import importlib
import pathlib
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

    def until_there(self, path: pathlib.Path) -> str:
        while not path.exists():
            time.sleep(0.01)
        return path.name

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


def when_there(actor: Any, path: pathlib.Path) -> Any:
    return actor.until_there.remote(path)


def test_results_as_they_come(tmp_path: pathlib.Path) -> None:
    pool = pool_of(2)
    paths = [tmp_path / "a", tmp_path / "b"]
    results = pool.map_unordered(when_there, paths)
    for path in reversed(paths):
        path.touch()
        assert next(results) == path.name
    assert list(results) == []
    assert list(pool.map(when_there, paths)) == ["a", "b"]
    assert sorted(pool.map_unordered(lambda a, v: a.double.remote(v), range(20))) == list(range(0, 40, 2))


def test_map_submits_at_once_and_is_read_later() -> None:
    pool = pool_of(1)
    results = pool.map(lambda a, v: a.double.remote(v), [1, 2, 3])
    assert not pool.has_free()
    assert next(results) == 2
    assert list(results) == [4, 6]


def test_map_forgets_what_was_submitted_before(tmp_path: pathlib.Path) -> None:
    pool = pool_of(2)
    pool.submit(when_there, tmp_path / "a")
    results = pool.map(lambda a, v: a.double.remote(v), [1, 2])
    (tmp_path / "a").touch()
    assert list(results) == [2, 4]


def test_in_order_after_as_they_come_is_refused(tmp_path: pathlib.Path) -> None:
    pool = pool_of(2)
    for name in "ab":
        pool.submit(when_there, tmp_path / name)
    (tmp_path / "b").touch()
    assert pool.get_next_unordered() == "b"
    with pytest.raises(ValueError, match="get_next_unordered"):
        pool.get_next()
    (tmp_path / "a").touch()
    assert pool.get_next_unordered() == "a"


def test_time_runs_out(tmp_path: pathlib.Path) -> None:
    pool = pool_of(1)
    pool.submit(when_there, tmp_path / "a")
    with pytest.raises(TimeoutError):
        pool.get_next(timeout=0.01)
    with pytest.raises(TimeoutError):
        pool.get_next_unordered(timeout=0.01)
    (tmp_path / "a").touch()
    assert pool.get_next(timeout=60) == "a"
    pool.submit(when_there, tmp_path / "b")
    with pytest.raises(TimeoutError, match="ignored"):
        pool.get_next(timeout=0.01, ignore_if_timedout=True)
    assert not pool.has_next()
    (tmp_path / "b").touch()


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
