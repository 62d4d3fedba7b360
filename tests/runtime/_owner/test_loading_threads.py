"""Jobs run, also beside others that are stuck."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from runtime._owner.loading_threads import USUAL, LoadingThreads
from tests.polling import eventually


@pytest.fixture
def threads() -> Iterator[LoadingThreads]:
    made = LoadingThreads()
    yield made
    made.close()
    assert eventually(lambda: not [one for one in threading.enumerate() if one.name == "load"])


def test_all_jobs_run(threads: LoadingThreads) -> None:
    done = threading.Semaphore(0)
    for _ in range(1000):
        threads.submit(done.release)
    for _ in range(1000):
        assert done.acquire(timeout=60)


def test_a_job_that_raises_stops_no_other(threads: LoadingThreads) -> None:
    done = threading.Semaphore(0)

    def fail() -> None:
        done.release()
        raise SystemExit(3)

    for _ in range(3 * USUAL):
        threads.submit(fail)
    for _ in range(3 * USUAL):
        assert done.acquire(timeout=60)
    threads.submit(done.release)
    assert done.acquire(timeout=60)


def test_jobs_run_beside_any_number_that_are_stuck(threads: LoadingThreads) -> None:
    release = threading.Event()
    stuck = threading.Semaphore(0)

    def job() -> None:
        stuck.release()
        release.wait(60)

    try:
        for _ in range(3 * USUAL):
            threads.submit(job)
        for _ in range(3 * USUAL):
            assert stuck.acquire(timeout=60)
        done = threading.Event()
        threads.submit(done.set)
        assert done.wait(60)
    finally:
        release.set()


def test_threads_that_joined_leave_when_nothing_is_left(threads: LoadingThreads) -> None:
    release = threading.Event()
    for _ in range(3 * USUAL):
        threads.submit(lambda: release.wait(60) and None)
    assert eventually(lambda: len([one for one in threading.enumerate() if one.name == "load"]) > USUAL)
    release.set()
    assert eventually(lambda: len([one for one in threading.enumerate() if one.name == "load"]) <= USUAL)


def test_jobs_that_wait_at_the_end_run_all_the_same(threads: LoadingThreads) -> None:
    release = threading.Event()
    began, done = threading.Semaphore(0), threading.Semaphore(0)

    def block() -> None:
        began.release()
        release.wait(60)

    for _ in range(USUAL):
        threads.submit(block)
    for _ in range(USUAL):
        assert began.acquire(timeout=60)
    for _ in range(10):
        threads.submit(done.release)
    threads.close()
    release.set()
    for _ in range(10):
        assert done.acquire(timeout=60)


def test_a_job_that_comes_after_the_end_runs(threads: LoadingThreads) -> None:
    done = threading.Event()
    threads.submit(done.set)
    assert done.wait(60)
    assert eventually(lambda: threads._idle)
    threads.close()
    late = threading.Event()
    threads.submit(late.set)
    assert late.wait(60)
