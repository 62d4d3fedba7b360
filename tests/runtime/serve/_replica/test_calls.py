"""Calls by a handle: values, errors, streams, slots, cancels, drains."""

import asyncio
import socket
import threading

import pytest

from runtime import exceptions
from runtime.serve import context
from runtime.serve._replica import service
from runtime.serve._wire.messages import Cancel, End, Failure, Item
from tests.runtime.serve._replica.stand_in import Caller, serving, until


class Boom(Exception):
    pass


class Deployment:
    def __init__(self):
        self.seen = []
        self.going = asyncio.Event()
        self.sync_going = threading.Event()

    async def add(self, x, y=1):
        return x + y

    def add_on_thread(self, x):
        self.seen.append(threading.current_thread().name)
        return x + 1

    async def fail(self):
        raise Boom("broken")

    async def who(self):
        request = context.current_request()
        return request.request_id, request.app_name, context.get_multiplexed_model_id()

    async def count(self, n):
        for i in range(n):
            yield i

    def count_on_thread(self, n):
        for i in range(n):
            yield i, threading.current_thread().name

    async def fail_late(self):
        yield 1
        raise Boom("late")

    async def forever(self):
        self.seen.append("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise

    async def stream_forever(self):
        try:
            while True:
                yield b"x" * 100_000
        finally:
            self.seen.append("closed")

    def stop_iteration(self):
        return next(iter(()))

    async def leave(self):
        raise SystemExit(3)

    def wait_on_thread(self):
        self.seen.append("begun")
        self.sync_going.wait(10)
        return "done"

    async def what(self):
        return self.seen


def test_calls_return_values_and_raise_errors_of_their_own_class():
    async def main():
        async with serving(Deployment) as (_, caller):
            assert await caller.call("add", 1) == 2
            assert await caller.call("add", 1, y=5) == 6
            assert await caller.call("add_on_thread", 1) == 2
            assert "MainThread" not in await caller.call("what")
            with pytest.raises(Boom) as caught:
                await caller.call("fail")
            assert isinstance(caught.value, exceptions.RayTaskError)
            assert "fail" in str(caught.value)
            assert "broken" in str(caught.value)

    asyncio.run(main())


def test_errors_that_would_end_the_event_loop_end_the_call_only():
    async def main():
        async with serving(Deployment) as (_, caller):
            with pytest.raises(RuntimeError, match="StopIteration"):
                await caller.call("stop_iteration")
            with pytest.raises(exceptions.RayTaskError, match="SystemExit"):
                await caller.call("leave")
            assert await caller.call("add", 1) == 2

    asyncio.run(main())


def test_a_call_sees_its_request():
    async def main():
        async with serving(Deployment) as (_, caller):
            assert await caller.call("who", model="m1") == ("id-1", "app", "m1")
        assert context.current_request().request_id == ""

    asyncio.run(main())


def test_a_function_is_called_whatever_the_method():
    async def main():
        async def double(x):
            return 2 * x

        async with serving(double) as (_, caller):
            assert await caller.call("__call__", 4) == 8

    asyncio.run(main())


def test_generators_stream_their_items():
    async def main():
        async with serving(Deployment) as (_, caller):
            assert [x async for x in caller.stream("count", 300)] == list(range(300))
            items = [x async for x in caller.stream("count_on_thread", 300)]
            assert [x for x, _ in items] == list(range(300))
            assert {name for _, name in items} == {"serve-sync_0"}
            late = caller.stream("fail_late")
            assert await anext(late) == 1
            with pytest.raises(Boom, match="late"):
                await anext(late)

    asyncio.run(main())


def test_a_call_and_a_stream_are_told_apart():
    async def main():
        async with serving(Deployment) as (_, caller):
            with pytest.raises(TypeError, match="stream=True"):
                await caller.call("count", 3)
            with pytest.raises(TypeError, match="did not return a generator"):
                async for _ in caller.stream("add", 3):
                    pass

    asyncio.run(main())


def test_a_stream_waits_for_its_reader_and_ends_when_cancelled():
    async def main():
        async with serving(Deployment) as (service, caller):
            caller.reads = False
            number = await caller.begin_call("stream_forever", stream=True)
            items = [await caller.next(number) for _ in range(10)]
            assert all(isinstance(item, Item) for item in items)
            for _ in range(20):
                await asyncio.sleep(0)
            sent = 10 + caller.received[number].qsize()
            assert sent <= 12  # of 100 kB each, for a window of 1 MiB
            caller.connection.send(Cancel(number))
            last = None
            while not isinstance(last, Failure):
                last = await caller.next(number)
            assert last.kind == "cancelled"
            assert service.ongoing == 0
            caller.reads = True
            assert "closed" in await caller.call("what")

    asyncio.run(main())


def test_more_requests_than_slots_are_refused():
    async def main():
        async with serving(Deployment, slots=1) as (service, caller):
            one = await caller.begin_call("forever")
            caller.slots += 1  # as a caller that counts wrongly does
            two = await caller.begin_call("add", 1)
            refused = await caller.next(two)
            assert isinstance(refused, Failure)
            assert refused.kind == "refused"
            assert service.ongoing == 1
            caller.connection.send(Cancel(one))
            assert (await caller.next(one)).kind == "cancelled"
            assert await caller.call("what") == ["begun", "cancelled"]

    asyncio.run(main())


def test_a_cancelled_sync_call_keeps_its_slot_until_its_thread_has_ended():
    async def main():
        async with serving(Deployment, slots=2) as (service, caller):
            number = await caller.begin_call("wait_on_thread")
            await until(lambda: "begun" in service.user.instance.seen)
            caller.connection.send(Cancel(number))
            assert await caller.call("add", 1) == 2
            assert service.ongoing == 1
            service.user.instance.sync_going.set()
            assert (await caller.next(number)).kind == "cancelled"

    asyncio.run(main())


def test_a_lost_caller_cancels_its_requests():
    async def main():
        async with serving(Deployment) as (service, caller):
            await caller.begin_call("forever")
            await until(lambda: service.user.instance.seen)
            caller.connection.close()
            await caller.lost
            await until(lambda: not service.ongoing)
            assert service.user.instance.seen == ["begun", "cancelled"]

    asyncio.run(main())


def test_a_wrong_token_is_turned_away():
    async def main():
        async with serving(Deployment) as (service, _):
            stranger = Caller()
            await stranger.connect(service._servers[0].sockets[0].getsockname(), b"guess")
            await asyncio.wait_for(stranger.lost, 10)
            assert not stranger.welcome.done()

    asyncio.run(main())


def test_a_connection_that_says_nothing_is_closed(monkeypatch):
    monkeypatch.setattr(service, "HELLO_S", 0.01)

    async def main():
        async with serving(Deployment) as (replica, _):
            stranger = socket.socket(socket.AF_UNIX)
            stranger.connect(replica._servers[0].sockets[0].getsockname())
            with stranger:
                assert await asyncio.to_thread(stranger.recv, 1) == b""

    asyncio.run(main())


def test_a_drain_waits_for_requests_and_cancels_those_that_take_too_long():
    async def main():
        async with serving(Deployment, slots=3) as (service, caller):
            waiting = await caller.begin_call("wait_on_thread")
            await until(lambda: service.user.instance.seen)
            draining = asyncio.ensure_future(service.drain(10))
            await asyncio.sleep(0)
            service.user.instance.sync_going.set()
            assert await draining == 0
            assert not (await caller.next(waiting)).keep
        async with serving(Deployment) as (service, caller):
            number = await caller.begin_call("forever")
            await until(lambda: service.user.instance.seen)
            assert await service.drain(0) == 1
            assert (await caller.next(number)).kind == "cancelled"

    asyncio.run(main())


def test_a_stream_ends_with_the_slot_kept():
    async def main():
        async with serving(Deployment) as (_, caller):
            number = await caller.begin_call("count", 1, stream=True)
            assert isinstance(await caller.next(number), Item)
            last = await caller.next(number)
            assert isinstance(last, End)
            assert last.keep

    asyncio.run(main())


class Odd:
    """Its code ends in unusual ways."""

    class Quits(BaseException):
        pass

    class Unprintable(Exception):
        def __str__(self):
            raise ValueError("no words")

        def __reduce__(self):
            raise ValueError("no pickle")

    async def quit(self):
        raise self.Quits

    def quit_thread(self):
        raise self.Quits

    def leave(self):
        raise GeneratorExit

    def unprintable(self):
        raise self.Unprintable

    def circle(self):
        error = ValueError("a")
        error.__cause__ = KeyError("b")
        error.__cause__.__context__ = error
        raise error

    async def wait(self):
        await asyncio.Event().wait()

    async def fine(self):
        return "fine"


@pytest.mark.parametrize("method", ["quit", "quit_thread", "leave", "unprintable", "circle"])
def test_whatever_ends_the_code_its_caller_gets_an_answer_and_the_slot_is_free(method):
    async def main():
        async with serving(Odd, slots=1) as (_, caller):
            message = await caller.next(await caller.begin_call(method))
            assert (message.kind, message.body != b"") == ("user", True)
            assert await caller.call("fine") == "fine"

    asyncio.run(main())


def test_a_request_that_is_cancelled_in_the_turn_in_which_it_comes_frees_its_slot():
    async def main():
        async with serving(Odd, slots=1) as (_, caller):
            number = await caller.begin_call("wait")
            caller.connection.send(Cancel(number))
            assert (await caller.next(number)).kind == "cancelled"
            assert await caller.call("fine") == "fine"

    asyncio.run(main())


def test_statistics_that_callers_could_not_read_cost_no_connection():
    async def main():
        async with serving(Odd, slots=1) as (replica, caller):
            for wrong in ({1: 2}, {"a": object()}, {"a": 1 << 70}):
                with pytest.raises(TypeError, match="Statistics must be"):
                    replica.tell_statistics(wrong)
            replica.tell_statistics({"a": [1, "b"]})
            assert await caller.call("fine") == "fine"

    asyncio.run(main())
