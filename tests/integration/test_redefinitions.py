"""A program that defines functions again and again, as a notebook does: what nobody can call any more goes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import runtime as ray
from runtime._ownership import tasks
from runtime._process.core_worker import current
from tests.polling import eventually


@pytest.fixture(autouse=True)
def session(no_leaks: None) -> Iterator[None]:
    ray.init(num_cpus=1, log_to_driver=False)
    yield
    ray.shutdown()


def known_to_worker() -> tuple[int, int]:
    functions = current().functions
    return len(functions._pickled), len(functions._loaded)


def defined_again(number: int) -> Any:
    return ray.remote(lambda: number)


def test_redefined_functions_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RESTING_POOLS", 3)
    look = ray.remote(known_to_worker)
    for number in range(60):
        assert ray.get(defined_again(number).remote(), timeout=60) == number
    gc.collect()

    def gone(check: Callable[[], bool]) -> Callable[[], bool]:
        def look_again() -> bool:
            gc.collect()
            return check()

        return look_again

    def forgotten() -> bool:
        pickled, loaded = ray.get(look.remote(), timeout=60)
        return pickled <= 2 and loaded <= 2

    assert eventually(gone(forgotten))
    core = current()
    assert all(len(connection.sent_functions) <= 2 for connection in core.links.peers())
    assert eventually(gone(lambda: len(core.tasks._pools) <= 5))


def test_a_function_that_others_like_it_outlive_can_still_be_called() -> None:
    one, other = defined_again(1), defined_again(1)
    assert ray.get([one.remote(), other.remote()], timeout=60) == [1, 1]
    del one
    gc.collect()
    assert ray.get([other.remote() for _ in range(20)], timeout=60) == [1] * 20
    del other
    gc.collect()
    assert ray.get(defined_again(1).remote(), timeout=60) == 1


def test_tasks_keep_their_function() -> None:
    refs = [defined_again(number).remote() for number in range(40)]
    gc.collect()
    assert ray.get(refs, timeout=60) == list(range(40))
