"""cancel: queued, running, finished, nested; tasks and actor calls."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest

from tests.gate import Gate
from tests.polling import eventually
from tests.under_test import OWN, exceptions, ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def hang(gate: Any) -> None:
    ray.get(gate.pass_through.remote())  # tells that it runs, and waits


@ray.remote
def sleep(gate: Any) -> None:
    gate.pass_through.remote()
    while True:
        time.sleep(0.01)


def cancelled(ref: Any) -> bool:
    try:
        ray.get(ref, timeout=60)
    except (exceptions.TaskCancelledError, exceptions.WorkerCrashedError):
        return True
    return False


def started(gate: Any, count: int = 1) -> bool:
    return eventually(lambda: ray.get(gate.waiting.remote()) >= count)


def test_a_running_task() -> None:
    gate = Gate.remote()
    ref = sleep.remote(gate)
    assert started(gate)
    ray.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(ref, timeout=60)


def test_a_task_that_waits_in_get() -> None:
    gate = Gate.remote()
    ref = hang.remote(gate)
    assert started(gate)
    ray.cancel(ref)
    assert cancelled(ref)


def test_by_force() -> None:
    gate = Gate.remote()
    ref = sleep.remote(gate)
    assert started(gate)
    ray.cancel(ref, force=True)
    assert cancelled(ref)


def test_a_cancelled_task_does_not_run_again() -> None:
    gate = Gate.remote()
    ref = sleep.options(max_retries=5).remote(gate)
    assert started(gate)
    ray.cancel(ref, force=True)
    assert cancelled(ref)
    assert ray.get(gate.waiting.remote()) == 1


def test_a_queued_task_never_runs() -> None:
    gate, late = Gate.remote(), Gate.remote()
    running = sleep.options(num_cpus=4).remote(gate)
    assert started(gate)
    queued = sleep.options(num_cpus=4).remote(late)
    ray.cancel(queued)
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(queued, timeout=60)
    ray.cancel(running, force=True)
    assert cancelled(running)
    assert ray.get(late.waiting.remote()) == 0


def test_a_task_that_waits_for_an_argument_never_runs() -> None:
    gate, late = Gate.remote(), Gate.remote()

    @ray.remote
    def then(value: Any, gate: Any) -> None:
        gate.pass_through.remote()

    ref = then.remote(gate.pass_through.remote(), late)
    ray.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(ref, timeout=60)
    ray.get(gate.open.remote())
    assert ray.get(late.waiting.remote()) == 0


def test_the_worker_can_be_used_again() -> None:
    gate = Gate.remote()
    refs = [sleep.remote(gate) for _ in range(4)]
    assert started(gate, 4)
    for ref in refs:
        ray.cancel(ref)
    assert all(cancelled(ref) for ref in refs)

    @ray.remote
    def square(value: int) -> int:
        return value * value

    assert ray.get([square.remote(i) for i in range(8)], timeout=60) == [i * i for i in range(8)]


def test_a_finished_task_keeps_its_value() -> None:
    ref = ray.remote(lambda: 5).remote()
    assert ray.get(ref) == 5
    ray.cancel(ref)
    assert ray.get(ref) == 5


def test_an_error_instead_of_the_interrupt_is_the_tasks_own() -> None:
    @ray.remote
    def stubborn(gate: Any) -> str:
        try:
            ray.get(gate.pass_through.remote())
        except KeyboardInterrupt:
            return "cleaned up"
        return "not interrupted"

    gate = Gate.remote()
    ref = stubborn.remote(gate)
    assert started(gate)
    ray.cancel(ref)
    with contextlib.suppress(exceptions.TaskCancelledError):  # raised when it is cancelled before it answers
        assert ray.get(ref, timeout=60) == "cleaned up"


def test_children_are_cancelled_too() -> None:
    @ray.remote
    def parent(gate: Any) -> None:
        ray.get(sleep.remote(gate))

    gate = Gate.remote()
    ref = parent.remote(gate)
    assert started(gate)
    ray.cancel(ref)
    assert cancelled(ref)
    assert eventually(lambda: ray.available_resources().get("CPU") == 4)


def test_a_waiting_coroutine_of_an_async_actor() -> None:
    gate = Gate.remote()
    ref = gate.pass_through.remote()
    assert started(gate)
    ray.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(ref, timeout=60)
    assert ray.get(gate.waiting.remote()) == 1


@pytest.mark.skipif(not OWN, reason="the other engine loses the order of the calls")
def test_a_queued_actor_call() -> None:
    @ray.remote(num_cpus=0)
    class Serial:
        def __init__(self) -> None:
            self.calls = 0

        def block(self, gate: Any) -> None:
            ray.get(gate.pass_through.remote())

        def count(self) -> int:
            self.calls += 1
            return self.calls

    gate, serial = Gate.remote(), Serial.remote()
    running = serial.block.remote(gate)
    assert started(gate)
    queued = serial.count.remote()
    ray.cancel(queued)
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(queued, timeout=60)
    ray.get(gate.open.remote())
    ray.get(running, timeout=60)
    assert ray.get(serial.count.remote(), timeout=60) == 1


def test_a_call_that_waits_for_a_thread_of_its_actor() -> None:
    @ray.remote(num_cpus=0, max_concurrency=2)
    class Threaded:
        def __init__(self) -> None:
            self.calls = 0

        def block(self, gate: Any) -> None:
            ray.get(gate.pass_through.remote())

        def count(self) -> int:
            self.calls += 1
            return self.calls

    gate, threaded = Gate.remote(), Threaded.remote()
    running = [threaded.block.remote(gate) for _ in range(2)]
    assert started(gate, 2)
    queued = threaded.count.remote()
    ray.cancel(queued)
    ray.get(gate.open.remote())
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(queued, timeout=60)
    ray.get(running, timeout=60)
    assert ray.get(threaded.count.remote(), timeout=60) == 1


def test_coroutines_that_have_hardly_begun() -> None:
    @ray.remote(num_cpus=0, max_concurrency=1)
    class Serial:
        async def block(self, gate: Any) -> None:
            await gate.pass_through.remote()

        async def echo(self, value: int) -> int:
            return value

    gate, serial = Gate.remote(), Serial.remote()
    running = serial.block.remote(gate)
    assert started(gate)
    refs = [serial.echo.remote(i) for i in range(50)]
    for ref in refs:
        ray.cancel(ref)
    ray.get(gate.open.remote())
    assert all(cancelled(ref) for ref in refs)
    ray.get(running, timeout=60)
    assert ray.get(serial.echo.remote(7), timeout=60) == 7


def test_force_is_refused_for_actor_calls() -> None:
    gate = Gate.remote()
    ref = gate.pass_through.remote()
    with pytest.raises(ValueError, match="force"):
        ray.cancel(ref, force=True)
    ray.get(gate.open.remote())
    ray.get(ref, timeout=60)


def test_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match="kill"):
        ray.cancel(3)
