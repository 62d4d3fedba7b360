"""Tasks that wait for others on one CPU: all of them end, and few processes are enough."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from tests.under_test import init, ray

FEW = 20


@pytest.fixture(scope="module", autouse=True)
def session(no_leaks: None) -> Iterator[None]:
    init(num_cpus=1)
    yield
    ray.shutdown()


@contextmanager
def few_processes() -> Iterator[None]:
    """Fails when more processes than a few run at a time."""
    counts, stop = [0], threading.Event()

    def watch() -> None:
        me = psutil.Process(os.getpid())
        while not stop.wait(0.02):
            counts.append(len(me.children(recursive=True)))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert max(counts) <= FEW


def test_a_thousand_nested_tasks() -> None:
    @ray.remote
    def inner(i: int) -> int:
        return i

    @ray.remote
    def outer(i: int) -> int:
        return int(ray.get(inner.remote(i))) + 1

    with few_processes():
        assert sum(ray.get([outer.remote(i) for i in range(1000)], timeout=300)) == sum(range(1001))


def test_tasks_that_wait_for_an_actor() -> None:
    @ray.remote(num_cpus=0)
    class Slow:
        def answer(self, i: int) -> int:
            time.sleep(0.03)
            return i

    @ray.remote
    def ask(slow: Any, i: int) -> int:
        return int(ray.get(slow.answer.remote(i)))

    slow = Slow.remote()
    with few_processes():
        assert sum(ray.get([ask.remote(slow, i) for i in range(200)], timeout=300)) == sum(range(200))


def test_recursion() -> None:
    @ray.remote
    def fib(n: int) -> int:
        return n if n < 2 else sum(ray.get([fib.remote(n - 1), fib.remote(n - 2)]))

    with few_processes():
        assert ray.get(fib.remote(8), timeout=300) == 21


def test_tasks_that_wait_for_each_other() -> None:
    @ray.remote(num_cpus=0)
    class Meeting:
        def __init__(self) -> None:
            self.full = asyncio.Event()
            self.count = 0

        async def come(self) -> None:
            self.count += 1
            if self.count == 3:
                self.full.set()
            await self.full.wait()

    @ray.remote
    def meet(meeting: Any) -> None:
        ray.get(meeting.come.remote())

    meeting = Meeting.remote()
    ray.get([meet.remote(meeting) for _ in range(3)], timeout=300)
