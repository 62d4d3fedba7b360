"""Handles from threads and event loops; the caller and a stand-in replica run on a thread of their own."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from runtime.serve._caller import caller as callers
from runtime.serve._caller.exchange import State
from runtime.serve._core.published import Targets
from runtime.serve.context import Deadline, RequestContext, _serve_request_context
from runtime.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RayServeException,
    ReplicaUnavailableError,
    RequestCancelledError,
)
from runtime.serve.handle import DeploymentHandle, DeploymentResponse, DeploymentResponseGenerator
from tests.polling import eventually
from tests.runtime.serve.stand_ins import NODE, Keys, StandIn

LIMIT_S = 20.0


class Calls:
    """A loop on a thread with a caller and replicas."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.replicas: list[StandIn] = []
        self.caller = callers.Caller(self.loop, NODE, self._follow, lambda demand: None)
        self.handle: DeploymentHandle[Any] = DeploymentHandle("D", "app")
        self._epoch = 0

    def _follow(self, deliver: Callable[[bytes, bytes | None], None]) -> Keys:
        self.keys = Keys(deliver)
        return self.keys

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LIMIT_S)

    def do(self, function: Callable[[], Any]) -> Any:
        async def work() -> Any:
            return function()

        return self.run(work())

    def add(self, slots: int = 5) -> StandIn:
        async def make() -> StandIn:
            replica = StandIn(slots)
            await replica.start()
            return replica

        replica: StandIn = self.run(make())
        self.replicas.append(replica)
        self.publish()
        return replica

    def publish(self, **options: Any) -> None:
        self._epoch += 1
        self.keys.publish(
            Targets(self._epoch, "running", [replica.target for replica in self.replicas], **options)
        )

    def close(self) -> None:
        self.run(self.caller.close())
        for replica in self.replicas:
            self.do(replica.close)
        self.do(lambda: None)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    made = Calls()
    monkeypatch.setattr(callers, "_caller", made.caller)
    yield made
    made.close()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.002)


# ---------------------------------------------------------------- one value


def test_a_result_in_a_plain_thread(calls):
    calls.add()
    response = calls.handle.remote([1, "two"])
    assert isinstance(response, DeploymentResponse)
    assert response.result(timeout_s=LIMIT_S) == [1, "two"]
    assert response.result() == [1, "two"]


def test_a_result_on_an_event_loop_of_the_program(calls):
    calls.add()

    async def program() -> list[Any]:
        responses = [calls.handle.remote(number) for number in range(20)]
        return [*await asyncio.gather(*responses), await responses[0]]

    assert asyncio.run(program()) == [*range(20), 0]


def test_a_result_on_the_callers_own_loop(calls):
    calls.add()

    async def program() -> list[Any]:
        return [await calls.handle.remote(number) for number in range(3)]

    assert calls.run(program()) == [0, 1, 2]


def test_many_threads_call_at_once(calls):
    calls.add(slots=3)
    results: list[int] = []

    def work(first: int) -> None:
        for number in range(first, first + 50):
            results.append(calls.handle.remote(number).result(timeout_s=LIMIT_S))

    threads = [threading.Thread(target=work, args=(1000 * index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [1000 * index + number for index in range(6) for number in range(50)]


def test_an_error_of_the_deployment_is_raised_where_the_result_is_read(calls):
    calls.add()
    response = calls.handle.fail.remote("no luck")
    for _ in range(2):
        with pytest.raises(ValueError, match="no luck"):
            response.result(timeout_s=LIMIT_S)


def test_a_result_has_a_time_limit_and_comes_later(calls):
    replica = calls.add()
    response = calls.handle.wait.remote()
    with pytest.raises(TimeoutError, match=r"0\.01 s"):
        response.result(timeout_s=0.01)
    calls.do(replica.code.gate.set)
    assert response.result(timeout_s=LIMIT_S) == replica.name


def test_blocking_on_an_event_loop_is_refused(calls):
    calls.add()

    async def program() -> None:
        with pytest.raises(RuntimeError, match="await response"):
            calls.handle.remote(1).result()
        with pytest.raises(RuntimeError, match="async for"):
            next(calls.handle.options(stream=True).count.remote(1))

    asyncio.run(program())


def test_back_pressure_comes_with_the_response(calls):
    replica = calls.add(slots=1)
    calls.publish(most_queued=1)
    responses = [calls.handle.wait.remote()]
    until(lambda: replica.begun)
    responses.append(calls.handle.wait.remote())
    until(lambda: calls.caller.queue("app", "D").waiting == 1)
    with pytest.raises(BackPressureError, match="max_queued_requests is 1"):
        calls.handle.remote(1).result(timeout_s=LIMIT_S)
    calls.do(replica.code.gate.set)
    assert [response.result(timeout_s=LIMIT_S) for response in responses] == [replica.name] * 2


# ---------------------------------------------------------------- arguments


def test_a_response_as_an_argument_becomes_its_value(calls):
    calls.add()
    first = calls.handle.remote(20)
    assert calls.handle.remote(calls.handle.remote(first)).result(timeout_s=LIMIT_S) == 20
    assert calls.handle.remote(value=first).result(timeout_s=LIMIT_S) == 20


def test_a_call_fails_with_the_response_that_it_got(calls):
    replica = calls.add()
    failing = calls.handle.fail.remote("first")
    with pytest.raises(ValueError, match="first"):
        calls.handle.remote(failing).result(timeout_s=LIMIT_S)
    assert len(replica.begun) == 1


def test_a_response_inside_a_list_is_refused(calls):
    calls.add()
    response = calls.handle.remote(1)
    with pytest.raises(RayServeException, match="cannot be pickled"):
        calls.handle.remote([response])
    with pytest.raises(RayServeException, match="cannot be pickled"):
        pickle.dumps(response)


def test_a_stream_is_no_argument(calls):
    calls.add()
    stream = calls.handle.options(stream=True).count.remote(2)
    with pytest.raises(RayServeException, match="collect its values"):
        calls.handle.remote(stream).result(timeout_s=LIMIT_S)
    assert list(stream) == [0, 1]


def test_an_argument_that_cannot_be_pickled_is_refused_at_once(calls):
    calls.add()
    with pytest.raises(TypeError, match="arguments of a call"):
        calls.handle.remote(threading.Lock())


# ---------------------------------------------------------------- cancelling


@pytest.mark.parametrize("running", [True, False])
def test_a_call_can_be_cancelled(calls, running):
    replica = calls.add(slots=1)
    blocking = calls.handle.wait.remote()
    until(lambda: replica.begun)
    response = blocking if running else calls.handle.remote(1)
    assert not response.cancelled()
    response.cancel()
    response.cancel()
    assert response.cancelled()
    with pytest.raises(RequestCancelledError, match=response.request_id):
        response.result(timeout_s=LIMIT_S)
    if running:
        until(lambda: replica.cancelled)
    calls.do(replica.code.gate.set)
    assert calls.handle.remote(2).result(timeout_s=LIMIT_S) == 2
    assert replica.cancelled == ([response.request_id] if running else [])


def test_cancelling_the_task_that_awaits_cancels_the_call(calls):
    replica = calls.add()

    async def program() -> None:
        task = asyncio.ensure_future(calls.handle.wait.remote()._value())
        await asyncio.sleep(0)  # it awaits
        while not replica.begun:  # noqa: ASYNC110 - it is of another loop
            await asyncio.sleep(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(program())
    until(lambda: replica.cancelled)


def test_a_call_whose_argument_is_awaited_can_be_cancelled(calls):
    replica = calls.add()
    response = calls.handle.remote(calls.handle.wait.remote())
    response.cancel()
    with pytest.raises(RequestCancelledError):
        response.result(timeout_s=LIMIT_S)
    calls.do(replica.code.gate.set)
    assert calls.handle.remote(2).result(timeout_s=LIMIT_S) == 2
    assert len(replica.begun) == 2


# ---------------------------------------------------------------- streams


def test_a_stream_in_a_plain_thread(calls):
    calls.add()
    stream = calls.handle.options(stream=True).count.remote(500)
    assert isinstance(stream, DeploymentResponseGenerator)
    assert list(stream) == list(range(500))
    assert list(stream) == []


def test_a_stream_larger_than_the_window(calls):
    calls.add()
    stream = calls.handle.options(stream=True).count.remote(50, 100_000)
    assert sum(len(item) for item in stream) == 5_000_000


def test_a_stream_on_event_loops(calls):
    calls.add()

    async def program() -> list[int]:
        return [item async for item in calls.handle.options(stream=True).count.remote(100)]

    assert asyncio.run(program()) == list(range(100))
    assert calls.run(program()) == list(range(100))


def test_a_stream_ends_with_the_error_of_the_deployment(calls):
    calls.add()
    stream = calls.handle.options(stream=True).count_and_fail.remote(2)
    assert [next(stream), next(stream)] == [0, 1]
    with pytest.raises(ValueError, match="at the end"):
        next(stream)
    assert list(stream) == []


def test_a_stream_that_nobody_reads_any_more_is_cancelled(calls):
    replica = calls.add(slots=1)
    stream = calls.handle.options(stream=True).count.remote(1 << 20, 100_000)
    next(stream)
    del stream
    gc.collect()
    assert calls.handle.remote(1).result(timeout_s=LIMIT_S) == 1, "the slot is free"
    assert len(replica.cancelled) == 1


def test_a_stream_has_no_single_result(calls):
    calls.add()
    stream = calls.handle.options(stream=True).count.remote(1)
    with pytest.raises(TypeError, match="use `for`"):
        stream.result()

    async def program() -> None:
        with pytest.raises(TypeError, match="cannot be awaited"):
            await stream

    asyncio.run(program())
    assert list(stream) == [0]


# ---------------------------------------------------------------- the handle


def test_options_make_a_copy(calls):
    replica = calls.add()
    assert calls.handle.options(method_name="who").remote().result(timeout_s=LIMIT_S) == replica.name
    assert calls.handle.remote(3).result(timeout_s=LIMIT_S) == 3
    with pytest.raises(ValueError, match="msgpack"):
        calls.handle.options(request_serialization="xml")
    with pytest.raises(TypeError):
        calls.handle.options(unknown=1)
    with pytest.raises(NotImplementedError, match="RequestRouter"):
        calls.handle.choose_replica()
    with pytest.warns(UserWarning, match="_prefer_local_routing"):
        calls.handle.options(_prefer_local_routing=True)


def test_a_handle_pickles_to_its_names_and_options(calls):
    replica = calls.add()
    copy = pickle.loads(pickle.dumps(calls.handle.who))
    assert (copy.deployment_name, copy.app_name) == ("D", "app")
    assert copy.remote().result(timeout_s=LIMIT_S) == replica.name
    assert repr(copy) == "DeploymentHandle(deployment='D')"


def test_calls_inside_a_request_have_its_id(calls):
    replica = calls.add()
    token = _serve_request_context.set(RequestContext(request_id="outer", app_name="front"))
    try:
        response = calls.handle.remote(1)
    finally:
        _serve_request_context.reset(token)
    assert response.result(timeout_s=LIMIT_S) == 1
    assert (response.request_id, replica.begun) == ("outer", ["outer"])
    assert calls.handle.remote(1).request_id != calls.handle.remote(1).request_id


def test_a_broadcast_waits_until_the_replicas_are_known(calls):
    response = calls.handle.broadcast("who")
    replica = calls.add()
    assert response.results(timeout_s=LIMIT_S) == [replica.name]


def test_a_broadcast_to_no_replica_fails(calls):
    calls.publish()
    with pytest.raises(DeploymentUnavailableError, match="no replica"):
        calls.handle.broadcast("who").results(timeout_s=LIMIT_S)


def test_a_broadcast_to_a_replica_that_leaves_before_it_has_a_slot_fails(calls):
    replica = calls.add(slots=0)
    until(calls.handle.running_replicas_populated)
    response = calls.handle.broadcast("who")
    calls.replicas.remove(replica)
    calls.publish()
    with pytest.raises(ReplicaUnavailableError):
        response.results(timeout_s=LIMIT_S)
    calls.do(replica.close)


def test_a_broadcast_reaches_every_replica(calls):
    names = {calls.add().name for _ in range(3)}
    until(
        lambda: calls.handle.running_replicas_populated() and len(calls.caller.queue("app", "D").links) == 3
    )
    assert set(calls.handle.broadcast("who").results(timeout_s=LIMIT_S)) == names
    errors = calls.handle.broadcast("fail", "x").results(timeout_s=LIMIT_S, return_exceptions=True)
    assert [str(error) for error in errors] == ["x"] * 3
    with pytest.raises(ValueError, match="x"):
        calls.handle.broadcast("fail", "x").results(timeout_s=LIMIT_S)

    async def program() -> list[str]:
        return await calls.handle.broadcast("who").results_async(timeout_s=LIMIT_S)

    assert set(asyncio.run(program())) == names


def test_a_call_without_a_result_says_where_it_is(calls: Calls) -> None:
    response = calls.handle.remote()
    with pytest.raises(TimeoutError, match="no such deployment runs in this cluster"):
        response.result(timeout_s=0.01)
    replica = calls.add(slots=1)
    response.result(timeout_s=LIMIT_S)
    running = calls.handle.wait.remote()
    assert eventually(lambda: running._exchange.state is State.SENT)
    with pytest.raises(TimeoutError, match=f"It runs in {replica.target.replica}"):
        running.result(timeout_s=0.01)
    with pytest.raises(TimeoutError, match="responses among its arguments"):
        calls.handle.remote(running).result(timeout_s=0.01)
    running.cancel()


@pytest.mark.parametrize(
    "options", [{"multiplexed_model_id": 5}, {"session_id": b"x"}, {"method_name": None}, {"stream": "yes"}]
)
def test_options_that_a_replica_could_not_read_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(options))):
        DeploymentHandle("D", "app").options(**options)


def test_calls_end_with_the_time_of_the_request_that_makes_them(calls: Calls) -> None:
    replica = calls.add(slots=1)
    deadline = Deadline(0.05)
    token = _serve_request_context.set(RequestContext(_deadline=deadline))
    try:
        running, waiting = calls.handle.wait.remote(), calls.handle.remote()
        with pytest.raises(TimeoutError, match=f"request_timeout_s.*It ran in {replica.target.replica}"):
            running.result(timeout_s=LIMIT_S)
        with pytest.raises(TimeoutError, match="request_timeout_s"):
            waiting.result(timeout_s=LIMIT_S)
        with pytest.raises(TimeoutError, match="request_timeout_s"):
            calls.handle.wait.remote().result(timeout_s=LIMIT_S)
        deadline.is_met = True
        assert (
            calls.handle.remote(7).result(timeout_s=LIMIT_S) == 7
        )  # the slot is free, and there is no limit
    finally:
        _serve_request_context.reset(token)
