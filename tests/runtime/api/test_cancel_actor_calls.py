"""cancel from elsewhere and of actor calls: borrowed references, the flag, coroutines; and at any moment."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from tests.gate import Gate
from tests.polling import eventually
from tests.under_test import OWN, exceptions, ray

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def hang(gate: Any) -> None:
    ray.get(gate.pass_through.remote())


@ray.remote(num_cpus=0)
def cancel(refs: list[Any], force: bool = False) -> None:
    ray.cancel(refs[0], force=force)


def started(gate: Any, count: int = 1) -> bool:
    return eventually(lambda: ray.get(gate.waiting.remote()) >= count)


class TestBorrowedReferences:
    @pytest.mark.parametrize("force", [False, True])
    def test_who_got_the_reference_may_cancel(self, force: bool) -> None:
        gate = Gate.remote()
        ref = hang.remote(gate)
        assert started(gate)
        ray.get(cancel.remote([ref], force))
        with pytest.raises((exceptions.TaskCancelledError, exceptions.WorkerCrashedError)):
            ray.get(ref, timeout=30)

    def test_the_driver_cancels_a_task_of_a_task(self) -> None:
        @ray.remote(num_cpus=0)
        def start(gate: Any) -> list[Any]:
            return [hang.remote(gate)]

        gate = Gate.remote()
        (inner,) = ray.get(start.remote(gate))
        assert started(gate)
        ray.cancel(inner)
        with pytest.raises(exceptions.TaskCancelledError):
            ray.get(inner, timeout=30)

    def test_a_call_of_an_actor(self) -> None:
        gate = Gate.remote()
        ref = gate.pass_through.remote()
        assert started(gate)
        ray.get(cancel.remote([ref]))
        with pytest.raises(exceptions.TaskCancelledError):
            ray.get(ref, timeout=30)


def test_a_call_that_waits_for_its_argument_is_cancelled_with_the_task_that_made_it() -> None:
    @ray.remote(num_cpus=0)
    class Keeper:
        def keep(self, refs: list[Any]) -> None:
            self.refs = refs

        def kept(self) -> list[Any]:
            return self.refs

    @ray.remote(num_cpus=0)
    def parent(gate: Any, keeper: Any, never: list[Any]) -> None:
        call = gate.pass_through.remote(never[0])
        ray.get(keeper.keep.remote([call]))
        ray.get(gate.pass_through.remote())

    gate, keeper = Gate.remote(), Keeper.remote()
    task = parent.remote(gate, keeper, [Gate.remote().pass_through.remote()])
    assert started(gate)
    (call,) = ray.get(keeper.kept.remote())
    ray.cancel(task, recursive=True)
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(call, timeout=30)


class TestTheFlag:
    @pytest.mark.parametrize("threads", [1, 2])
    def test_a_method_that_looks_can_stop_and_its_call_is_cancelled(self, threads: int) -> None:
        @ray.remote(num_cpus=0, max_concurrency=threads)
        class Patient:
            def __init__(self) -> None:
                self.stopped = False

            def work(self, gate: Any) -> str:
                gate.pass_through.remote()
                for _ in range(1000):
                    if ray.get_runtime_context().is_canceled():
                        self.stopped = True
                        return "stopped"
                    time.sleep(0.01)
                return "done"

            def has_stopped(self) -> bool:
                return self.stopped

        gate, patient = Gate.remote(), Patient.remote()
        ref = patient.work.remote(gate)
        assert started(gate)
        ray.cancel(ref)
        assert eventually(lambda: ray.get(patient.has_stopped.remote()))
        with pytest.raises(exceptions.TaskCancelledError):
            ray.get(ref, timeout=30)

    def test_not_for_async_actors_and_drivers(self) -> None:
        @ray.remote(num_cpus=0)
        class Async:
            async def ask(self) -> bool:
                answer: bool = ray.get_runtime_context().is_canceled()
                return answer

        with pytest.raises(RuntimeError):
            ray.get(Async.remote().ask.remote())
        with pytest.raises(RuntimeError):
            ray.get_runtime_context().is_canceled()

    def test_it_is_false_otherwise(self) -> None:
        assert ray.get(ray.remote(lambda: ray.get_runtime_context().is_canceled()).remote()) is False


class TestErrors:
    @pytest.mark.parametrize("restarts", [0, -1])
    def test_a_cancelled_call_whose_process_dies_is_cancelled_and_not_repeated(self, restarts: int) -> None:
        @ray.remote(num_cpus=0, max_restarts=restarts, max_task_retries=-1)
        class Stubborn:
            async def work(self, gate: Any) -> None:
                gate.pass_through.remote()  # without a wait, in which it could be cancelled
                while True:
                    try:
                        await asyncio.sleep(1000)
                    except asyncio.CancelledError:
                        gate.pass_through.remote()

        gate, stubborn = Gate.remote(), Stubborn.remote()
        ray.get(gate.open.remote())
        ref = stubborn.work.remote(gate)
        assert started(gate)
        ray.cancel(ref)
        assert started(gate, 2)
        ray.kill(stubborn, no_restart=not restarts)
        with pytest.raises(exceptions.TaskCancelledError):
            ray.get(ref, timeout=60)
        if restarts:
            ray.get(stubborn.__ray_ready__.remote(), timeout=60)
        assert ray.get(gate.waiting.remote()) == 2

    def test_an_interrupted_task_raises_both_classes(self) -> None:
        gate = Gate.remote()
        ref = hang.remote(gate)
        assert started(gate)
        ray.cancel(ref)
        with pytest.raises(exceptions.TaskCancelledError) as caught:
            ray.get(ref, timeout=30)
        if isinstance(caught.value, exceptions.RayTaskError):
            assert "hang" in str(caught.value)

    def test_a_coroutine_that_hides_the_cancellation_is_cancelled(self) -> None:
        @ray.remote(num_cpus=0)
        class Stubborn:
            async def work(self, gate: Any) -> str:
                try:
                    await gate.pass_through.remote()
                except asyncio.CancelledError:
                    return "hidden"
                return "done"

        gate, stubborn = Gate.remote(), Stubborn.remote()
        ref = stubborn.work.remote(gate)
        assert started(gate)
        ray.cancel(ref)
        with pytest.raises(exceptions.TaskCancelledError):
            ray.get(ref, timeout=30)

    def test_an_interrupt_of_its_own_counts_as_cancelled(self) -> None:
        @ray.remote
        def interrupt() -> None:
            raise KeyboardInterrupt

        with pytest.raises(exceptions.TaskCancelledError):
            ray.get(interrupt.remote())

    def test_values_that_were_put_are_left_alone(self) -> None:
        ref = ray.put(1)
        ray.cancel(ref)
        assert ray.get(ref) == 1

    @pytest.mark.parametrize("what", [3, [], None])
    def test_words(self, what: Any) -> None:
        with pytest.raises(TypeError, match="only supported for object refs"):
            ray.cancel(what)
        with pytest.raises(ValueError, match="only supported for actors"):
            ray.kill(what)


@pytest.mark.skipif(not OWN, reason="the other engine hangs now and then")
@pytest.mark.parametrize("seed", range(4))
def test_at_any_moment(seed: int) -> None:
    """Every reference ends in its value or in an error of cancellation, and the workers live on."""
    rng = random.Random(seed)

    @ray.remote(num_cpus=1)
    def task(value: int, depth: int) -> int:
        if depth:
            return int(ray.get(task.remote(value, depth - 1)))
        time.sleep(rng.random() * 0.01)
        return value

    @ray.remote(num_cpus=0)
    class Sync:
        def call(self, value: int) -> int:
            time.sleep(0.001)
            return value

    @ray.remote(num_cpus=0)
    class Async:
        async def call(self, value: int) -> int:
            await asyncio.sleep(0.001)
            return value

    actors = [Sync.remote(), Async.remote(), Sync.options(max_concurrency=3).remote()]
    refs = []
    for index in range(120):
        if rng.random() < 0.5:
            dependency = rng.choice(refs) if refs and rng.random() < 0.2 else index
            refs.append(task.remote(dependency, rng.randrange(3)))
        else:
            refs.append(rng.choice(actors).call.remote(index))
        if rng.random() < 0.4:
            ray.cancel(rng.choice(refs), recursive=rng.random() < 0.8)
        if rng.random() < 0.1:
            time.sleep(rng.random() * 0.02)
    allowed = (exceptions.TaskCancelledError, exceptions.RayTaskError)
    for ref in refs:
        try:
            assert isinstance(ray.get(ref, timeout=60), int)
        except allowed:
            continue
    assert ray.get([actor.call.remote(7) for actor in actors], timeout=60) == [7, 7, 7]
    assert ray.get([task.remote(1, 0) for _ in range(8)], timeout=60) == [1] * 8
    assert eventually(lambda: ray.available_resources().get("CPU") == 4)
