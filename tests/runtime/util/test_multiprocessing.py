"""`util.multiprocessing.Pool`: the standard library's calls, in actors."""

from __future__ import annotations

import importlib
import os
import pathlib
import queue
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.under_test import NAME, exceptions, ray

mp: Any = importlib.import_module(f"{NAME}.util.multiprocessing")
pytestmark = pytest.mark.usefixtures("session")


@pytest.fixture(scope="module")
def pool(session: None) -> Iterator[Any]:
    made = mp.Pool(processes=2)
    yield made
    made.terminate()
    made.join()


def square(value: int) -> int:
    return value * value


def power(base: int, exponent: int = 2) -> int:
    return int(base**exponent)


def fail_at(value: int, bad: int = 3) -> int:
    if value == bad:
        raise ZeroDivisionError("three")
    return value


def wait_for(path: str) -> str:
    while not os.path.exists(path):
        time.sleep(0.01)
    return "there"


def test_single_calls(pool: Any) -> None:
    assert pool.apply(power, (3,)) == 9
    assert pool.apply(power, (2,), {"exponent": 3}) == 8
    assert pool.apply(lambda: 1) == 1
    result = pool.apply_async(power, (3,), {"exponent": 3})
    result.wait(30)
    assert result.ready()
    assert result.successful()
    assert result.get() == 27
    with pytest.raises(ZeroDivisionError, match="three"):
        pool.apply(fail_at, (3,))
    with pytest.raises(TypeError):
        pool.apply(power)


def test_a_result_that_takes_time(pool: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "go"
    result = pool.apply_async(wait_for, (str(path),))
    result.wait(timeout=0.01)
    assert not result.ready()
    with pytest.raises(ValueError, match="not ready"):
        result.successful()
    with pytest.raises(mp.TimeoutError):
        result.get(timeout=0.01)
    path.touch()
    assert result.get(timeout=30) == "there"


def test_maps(pool: Any) -> None:
    assert pool.map(square, range(10)) == [n * n for n in range(10)]
    assert pool.map(square, (n for n in range(3)), chunksize=2) == [0, 1, 4]
    assert pool.map(square, []) == []
    assert pool.map_async(square, range(100), 7).get(30) == [n * n for n in range(100)]
    assert pool.starmap(power, [(2, 3), (3, 2)]) == [8, 9]
    assert pool.starmap_async(power, zip([2, 3], [1, 2], strict=True)).get(30) == [2, 9]
    with pytest.raises(ZeroDivisionError):
        pool.map(fail_at, range(10))
    failed = pool.map_async(fail_at, range(10))
    failed.wait(30)
    assert failed.ready()
    assert not failed.successful()
    assert len(set(pool.map(lambda _: os.getpid(), range(20)))) == 2


def test_imap_gives_results_in_order_and_exceptions_among_them(pool: Any) -> None:
    results = pool.imap(fail_at, iter(range(8)), chunksize=3)
    got = list(results)
    assert [one for one in got if not isinstance(one, Exception)] == [0, 1, 2, 4, 5, 6, 7]
    assert isinstance(got[3], Exception)
    with pytest.raises(StopIteration):
        next(results)
    assert list(pool.imap(square, range(5))) == [0, 1, 4, 9, 16]
    assert sorted(pool.imap_unordered(square, range(20), chunksize=4)) == [n * n for n in range(20)]
    assert list(pool.imap(square, [])) == []


@pytest.mark.skipif(NAME != "runtime", reason="Ray gives the third call to the actor that is busy")
def test_imap_does_not_wait_for_the_slowest(pool: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "go"

    def work(item: int) -> int:
        if item == 0:
            wait_for(str(path))
        return item

    results = pool.imap_unordered(work, range(3))
    assert results.next(timeout=30) == 1
    assert results.next(timeout=30) == 2
    with pytest.raises(mp.TimeoutError):
        results.next(timeout=0.01)
    path.touch()
    assert results.next(timeout=30) == 0


@pytest.mark.skipif(NAME != "runtime", reason="Ray raises while it reads ahead")
def test_an_iterable_that_raises(pool: Any) -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise KeyError("no more")

    for method in (pool.imap, pool.imap_unordered):
        results = method(square, items(), 2)
        assert sorted([next(results), next(results)]) == [0, 1]
        with pytest.raises(KeyError):
            next(results)
        with pytest.raises(StopIteration):
            next(results)


def test_callbacks(pool: Any) -> None:
    heard: queue.Queue[Any] = queue.Queue()
    pool.apply_async(square, (3,), callback=heard.put).wait(30)
    assert heard.get(timeout=30) == 9
    pool.map_async(square, range(3), callback=heard.put).wait(30)
    assert heard.get(timeout=30) == [0, 1, 4]
    pool.map_async(fail_at, range(10), chunksize=1, callback=heard.put, error_callback=heard.put).wait(30)
    assert isinstance(heard.get(timeout=30), ZeroDivisionError | Exception)
    assert heard.empty()
    pool.map_async(square, [], callback=heard.put).wait(30)
    assert heard.get(timeout=30) == []


def test_initializer_and_size(tmp_path: pathlib.Path) -> None:
    def begin(folder: str) -> None:
        pathlib.Path(folder, str(os.getpid())).touch()

    with mp.Pool(3, initializer=begin, initargs=(str(tmp_path),)) as made:
        assert len(list(tmp_path.iterdir())) == 3
        assert made.map(square, [1]) == [1]
    for wrong in (0, -1, 1000):
        with pytest.raises(ValueError, match="pool"):
            mp.Pool(wrong)


def test_actors_are_replaced_after_some_batches() -> None:
    with mp.Pool(1, maxtasksperchild=2) as made:
        pids = [made.apply(os.getpid) for _ in range(4)]
    assert pids[0] == pids[1]
    assert pids[2] == pids[3]
    assert pids[1] != pids[2]


def test_close_lets_calls_finish(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "go"
    made = mp.Pool(2)
    result = made.map_async(wait_for, [str(path)] * 2)
    made.close()
    with pytest.raises(ValueError, match="not running"):
        made.apply(square, (1,))
    assert not result.ready()
    path.touch()
    made.join()
    assert result.get(timeout=30) == ["there", "there"]


@pytest.mark.skipif(NAME != "runtime", reason="Ray ends the actors under an iterator")
def test_close_lets_iterators_finish() -> None:
    made = mp.Pool(2)
    results = made.imap(square, range(20))
    made.close()
    assert list(results) == [n * n for n in range(20)]
    made.join()


def test_terminate_gives_up_calls(tmp_path: pathlib.Path) -> None:
    made = mp.Pool(2)
    result = made.map_async(wait_for, [str(tmp_path / "never")] * 2)
    with pytest.raises(ValueError, match="still running"):
        made.join()
    made.terminate()
    made.join()
    result.wait(30)
    assert result.ready()
    assert not result.successful()
    with pytest.raises(exceptions.RayError):
        result.get()


def test_options_of_the_actors() -> None:
    with mp.Pool(1, ray_remote_args={"num_cpus": 2}) as made:
        assert made.apply(lambda: ray.get_runtime_context().get_assigned_resources()["CPU"]) == 2
