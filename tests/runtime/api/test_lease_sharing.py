"""Nobody keeps all workers while others wait for one, however much it has to do."""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
from collections.abc import Iterator

import pytest

import runtime as ray
from tests.integration.drivers import Driver

WAIT_S = 60.0


@ray.remote
def short() -> None:
    time.sleep(0.001)


@ray.remote
def other(number: int) -> int:
    return number


@ray.remote(num_cpus=2)
def large() -> str:
    return "large"


@contextlib.contextmanager
def full_swing() -> Iterator[None]:
    """Another thread has more tasks for the workers than they can do."""
    over = threading.Event()

    def submit() -> None:
        waiting = [short.remote() for _ in range(200)]
        while not over.is_set():
            done, waiting = ray.wait(waiting, num_returns=50)
            waiting += [short.remote() for _ in done]
        ray.get(waiting)

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        ray.get([short.remote() for _ in range(10)])
        yield
    finally:
        over.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.fixture(params=[1, 2])
def cpus(request: pytest.FixtureRequest) -> Iterator[int]:
    ray.init(num_cpus=request.param)
    yield request.param
    ray.shutdown()


def test_another_function_gets_its_turn(cpus: int) -> None:
    with full_swing():
        assert ray.get([other.remote(number) for number in range(20)], timeout=WAIT_S) == list(range(20))


def test_another_driver_gets_its_turn(cpus: int) -> None:
    address = ray.get_runtime_context().gcs_address
    with full_swing():
        driver = Driver(
            f"""
            import runtime as ray

            ray.init(address={address!r})

            @ray.remote
            def answer(number):
                return number

            print("sum", sum(ray.get([answer.remote(number) for number in range(20)])), flush=True)
            ray.shutdown()
            """
        )
        assert driver.line("sum") == "190"
        driver.close()


def test_a_task_that_needs_several_cpus_gets_them() -> None:
    ray.init(num_cpus=2)
    try:
        with full_swing():
            assert ray.get(large.remote(), timeout=WAIT_S) == "large"
    finally:
        ray.shutdown()


def test_a_long_task_does_not_keep_the_other_worker_from_being_shared(tmp_path: pathlib.Path) -> None:
    @ray.remote
    def work(path: str) -> None:
        end = time.monotonic() + WAIT_S
        while path and not pathlib.Path(path).exists() and time.monotonic() < end:
            time.sleep(0.01)

    over = tmp_path / "over"
    ray.init(num_cpus=2)
    try:
        refs = [work.remote("") for _ in range(20)]
        refs.insert(0, work.remote(str(over)))
        stop = threading.Event()

        def submit() -> None:
            while not stop.is_set():
                ray.get([work.remote("") for _ in range(50)])

        thread = threading.Thread(target=submit)
        thread.start()
        try:
            assert ray.get(other.remote(7), timeout=WAIT_S / 2) == 7
            assert not ray.wait(refs[:1], timeout=0)[0]
        finally:
            over.touch()
            stop.set()
            thread.join(WAIT_S)
        ray.get(refs)
    finally:
        ray.shutdown()
