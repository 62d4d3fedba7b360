"""The threads of threaded actors."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from runtime._executor.call_threads import CallThreads
from tests.polling import eventually


def test_all_calls_run_and_one_thread_keeps_their_order() -> None:
    ran: list[int] = []
    threads = CallThreads(1, "t", ran.append)
    for number in range(2000):
        threads.submit(number)
    assert eventually(lambda: len(ran) == 2000)
    assert ran == list(range(2000))
    assert not threads.backlog


@pytest.mark.parametrize("limit", [1, 2, 16])
def test_as_many_run_at_once_as_may_and_no_more(limit: int) -> None:
    """Each call waits for a gate: whoever begins must have woken the next thread before."""
    gate, lock = threading.Event(), threading.Lock()
    running: set[int] = set()
    done: list[int] = []

    def run(number: int) -> None:
        with lock:
            running.add(number)
        gate.wait(60)
        done.append(number)

    threads = CallThreads(limit, "t", run)
    for number in range(40):
        threads.submit(number)
    assert eventually(lambda: len(running) == limit)
    assert threads.backlog
    gate.set()
    assert eventually(lambda: sorted(done) == list(range(40)))


def test_threads_are_made_when_they_are_needed_and_used_again() -> None:
    names: set[str] = set()
    ran: list[int] = []

    def run(number: int) -> None:
        names.add(threading.current_thread().name)
        ran.append(number)

    threads = CallThreads(8, "once", run)
    for number in range(20):
        threads.submit(number)
        assert eventually(lambda: len(ran) == number + 1)  # noqa: B023
        assert eventually(lambda: len(threads._idle) == threads._count)
    assert names == {"once_1"}


def test_a_call_that_raises_costs_no_thread() -> None:
    ran: list[int] = []

    def run(number: int) -> None:
        if number % 2:
            raise ValueError(number)
        ran.append(number)

    threads = CallThreads(2, "t", run)
    for number in range(50):
        threads.submit(number)
    assert eventually(lambda: sorted(ran) == list(range(0, 50, 2)))


def test_what_waits_can_be_taken_back_and_what_has_begun_runs() -> None:
    gate = threading.Event()
    began: list[int] = []
    ended: list[int] = []

    def run(number: int) -> None:
        began.append(number)
        gate.wait(60)
        ended.append(number)

    threads = CallThreads(2, "t", run)
    for number in range(10):
        threads.submit(number)
    assert eventually(lambda: len(began) == 2)
    assert threads.clear() == [(number,) for number in range(2, 10)]
    gate.set()
    assert eventually(lambda: sorted(ended) == [0, 1])
    threads.submit(10)
    assert eventually(lambda: 10 in ended)


@pytest.mark.parametrize("seed", range(5))
def test_no_call_is_forgotten(seed: int) -> None:
    """Bursts that end just when threads go idle: a lost wake-up would leave calls in the queue."""
    random_numbers = random.Random(seed)
    ran: list[Any] = []
    threads = CallThreads(4, "t", ran.append)
    sent = 0
    for _ in range(300):
        for _ in range(random_numbers.choice((1, 1, 2, 5, 30))):
            threads.submit(sent)
            sent += 1
        if random_numbers.random() < 0.5:
            assert eventually(lambda: len(ran) == sent)  # noqa: B023
    assert eventually(lambda: len(ran) == sent)
    assert sorted(ran) == list(range(sent))
