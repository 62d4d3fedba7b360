"""Calls on the main thread: run in order, answered, and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from runtime import exceptions
from runtime._executor.executor import Executor
from runtime._owner.arguments import LostArguments
from runtime._owner.context import execution
from runtime._wire.messages.worker import ActorSetup, Cancel, Done, ExitActor, Retiring
from tests.runtime._executor.stand_ins import Exited, Parts, Peer, SafeEndings, SafeMain, push


class Worker:
    """An executor around stand-ins; `run` ends when it would wait for work."""

    def __init__(self) -> None:
        self.parts = Parts()
        self.owner = self.parts.owner
        self.pump = self.parts.pump
        self.caller = Peer()
        self.executor = Executor(
            self.parts.links, self.owner, SafeEndings, SafeMain, threading.current_thread()
        )

    def tell(self, message: Any) -> None:
        self.executor.handlers()[type(message)](self.caller, message, 0)  # type: ignore[arg-type]

    def run(self) -> None:
        with pytest.raises(AssertionError, match="waits for ever"):
            self.executor.run_forever()

    def make_actor(self, cls: type, **setup: Any) -> None:
        self.owner.functions.known[b"class"] = cls
        fields: dict[str, Any] = {"max_concurrency": 1, **setup}
        actor = ActorSetup(b"a" * 16, name="", namespace="", class_name=cls.__name__, **fields)
        self.tell(push(0, "__init__", b"class", actor=actor))

    @property
    def answers(self) -> list[tuple[int, bool]]:
        """Of each answer: which call, and whether it failed."""
        return [(one.task_id[0], one.failed) for one in self.caller.sent if isinstance(one, Done)]


@pytest.fixture
def worker() -> Iterator[Worker]:
    before = signal.getsignal(signal.SIGINT)
    yield Worker()
    signal.signal(signal.SIGINT, before)


def test_tasks_run_in_order_and_are_answered(worker: Worker) -> None:
    ran: list[tuple[str, int]] = []
    worker.owner.functions.known[b"f"] = lambda number: ran.append((execution.get().name, number))  # type: ignore[union-attr]
    for number in (1, 2):
        worker.owner.arguments[push(number).task_id] = ((number,), {}, [])
        worker.tell(push(number))
    worker.run()
    assert ran == [("f", 1), ("f", 2)]
    assert worker.answers == [(1, False), (2, False)]
    assert execution.get() is None
    assert worker.executor.running_tasks() == []


def test_a_task_that_raises_does_not_stop_the_next(worker: Worker) -> None:
    def fail() -> None:
        raise ValueError("no")

    worker.owner.functions.known |= {b"f": fail, b"g": lambda: 1}
    worker.tell(push(1))
    worker.tell(push(2, key=b"g"))
    worker.run()
    assert worker.answers == [(1, True), (2, False)]


def test_arguments_that_cannot_be_rebuilt_are_the_answer(worker: Worker) -> None:
    worker.owner.functions.known[b"f"] = lambda: 1
    worker.owner.arguments[push(1).task_id] = exceptions.RaySystemError("gone")
    worker.tell(push(1))
    worker.run()
    assert worker.answers == [(1, True)]


def test_a_task_whose_arguments_are_lost_goes_back_unanswered(worker: Worker) -> None:
    worker.owner.arguments[push(1).task_id] = LostArguments([])
    worker.tell(push(1))
    worker.run()
    assert [one.task_id[0] for one in worker.owner.sent_back] == [1]
    assert worker.answers == []
    assert worker.executor.running_tasks() == []


def test_a_task_that_was_cancelled_as_it_began_does_not_run(worker: Worker) -> None:
    ran: list[int] = []
    worker.owner.functions.known[b"f"] = lambda: ran.append(1)
    worker.tell(push(1))

    def take() -> None:
        worker.tell(Cancel(push(1).task_id, False, False))

    worker.owner.functions.known[b"g"] = take
    worker.tell(push(2, key=b"g"))
    worker.executor._calls.waiting.reverse()
    worker.run()
    assert worker.answers == [(1, True), (2, False)]
    assert not ran


def test_a_function_that_ran_as_often_as_it_may_ends_the_worker(worker: Worker) -> None:
    worker.owner.functions.known[b"f"] = lambda: 1
    worker.owner.functions.max_calls[b"f"] = 2
    for number in (1, 2, 3):
        worker.tell(push(number))
    with pytest.raises(Exited, match="max_calls"):
        worker.executor.run_forever()
    assert worker.answers == [(1, False), (2, False)]
    assert worker.caller.sent[-1] == Retiring(), "the third was never started"


class Plain:
    """A sync actor."""

    def method(self) -> int:
        return 1


def test_an_actor_is_made_and_called(worker: Worker) -> None:
    worker.make_actor(Plain)
    worker.tell(push(1, "method"))
    worker.tell(push(2, "missing"))
    worker.tell(push(3, "__ray_ready__"))
    worker.run()
    assert worker.answers == [(0, False), (1, False), (2, True), (3, False)]
    assert worker.executor.setup is not None
    assert not worker.executor.is_async


def test_an_actor_whose_constructor_raises_ends_when_its_calls_are_answered(worker: Worker) -> None:
    class Broken:
        def __init__(self) -> None:
            raise ValueError("no")

    worker.make_actor(Broken)
    worker.tell(push(1, "method"))
    with pytest.raises(Exited):
        worker.executor.run_forever()
    assert worker.answers == [(0, True), (1, True)]


def test_an_actor_without_handles_runs_what_has_come(worker: Worker) -> None:
    worker.make_actor(Plain)
    worker.tell(push(1, "method"))
    worker.tell(ExitActor())
    with pytest.raises(Exited):
        worker.executor.run_forever()
    assert worker.answers == [(0, False), (1, False)]


def test_a_call_that_ends_the_actor_is_not_answered_nor_are_those_behind_it(worker: Worker) -> None:
    worker.make_actor(Plain)
    worker.tell(push(1, "__ray_terminate__"))
    worker.tell(push(2, "method"))
    with pytest.raises(Exited, match="exit_actor"):
        worker.executor.run_forever()
    assert worker.answers == [(0, False)]


def test_the_calls_of_a_threaded_actor_run_on_threads_of_their_own(worker: Worker) -> None:
    both = threading.Barrier(2, timeout=60)

    class Threaded:
        def method(self) -> None:
            both.wait()

    worker.make_actor(Threaded, max_concurrency=2)
    worker.tell(push(1, "method"))
    worker.tell(push(2, "method"))
    answered = threading.Event()

    def flush_all() -> None:
        if {(1, False), (2, False)} <= set(worker.answers):  # that of the constructor may come last
            answered.set()

    worker.pump.flush_all = flush_all  # type: ignore[method-assign]
    worker.run()
    assert answered.wait(60)
    assert sorted(worker.answers) == [(0, False), (1, False), (2, False)]


def test_the_calls_of_an_async_actor_run_beside_each_other(worker: Worker) -> None:
    order: list[str] = []

    class Async:
        def __init__(self) -> None:
            self.event = asyncio.Event()

        async def wait(self) -> None:
            order.append("waits")
            await self.event.wait()
            order.append("goes on")

        async def release(self) -> None:
            order.append("releases")
            self.event.set()

    class Epoll:
        """Never readable: nothing comes in."""

        def __init__(self) -> None:
            self.read, self.write = os.pipe()

        def fileno(self) -> int:
            return self.read

        def close(self) -> None:
            os.close(self.read)
            os.close(self.write)

    epoll = Epoll()
    worker.pump.epoll = epoll  # type: ignore[attr-defined]
    worker.pump.poll_once = lambda: None  # type: ignore[attr-defined]
    worker.pump.drive_externally = lambda: None  # type: ignore[attr-defined]
    worker.make_actor(Async, max_concurrency=10)
    for number, name in ((1, "wait"), (2, "release")):
        worker.tell(push(number, name))
    worker.tell(ExitActor())
    try:
        with pytest.raises(Exited):
            worker.executor.run_forever()
    finally:
        epoll.close()
        loop = worker.executor._async._default.loop  # type: ignore[union-attr]
        loop.close()
        asyncio.set_event_loop(None)
    assert order == ["waits", "releases", "goes on"]
    assert sorted(worker.answers) == [(0, False), (1, False), (2, False)]
    assert worker.executor.is_async
