"""Waiting for answers in threads and on event loops."""

from __future__ import annotations

import asyncio
import threading

import pytest

from runtime.serve._caller.reply import Reply, Stream
from runtime.serve._wire.messages import Item, Result

RESULT = Result(1, b"x", True)


def test_the_first_answer_counts():
    reply = Reply()
    reply.settle(RESULT)
    reply.settle(ValueError())
    assert reply.wait(None) is RESULT
    assert asyncio.run(reply.arrival()) is RESULT


def test_a_wait_without_an_answer_times_out():
    reply = Reply()
    for timeout_s in (0.0, 0.01):
        with pytest.raises(TimeoutError):
            reply.wait(timeout_s)
    reply.settle(RESULT)
    assert reply.wait(0.0) is RESULT


def test_polling_for_an_answer_leaves_nothing_behind():
    reply = Reply()

    async def poll() -> None:
        for _ in range(10):
            waiting = asyncio.ensure_future(reply.arrival())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])

    for _ in range(10):
        with pytest.raises(TimeoutError):
            reply.wait(0.0)
    asyncio.run(poll())
    assert not reply._signal._wakers


def test_threads_and_loops_wait_for_one_answer():
    reply = Reply()
    seen: list[object] = []

    async def program() -> None:
        seen.extend(await asyncio.gather(reply.arrival(), reply.arrival()))

    threads = [threading.Thread(target=lambda: seen.append(reply.wait(10.0))) for _ in range(3)]
    threads.append(threading.Thread(target=lambda: asyncio.run(program())))
    for thread in threads:
        thread.start()
    reply.settle(RESULT)
    for thread in threads:
        thread.join()
    assert seen == [RESULT] * 5


def test_a_loop_that_has_ended_is_not_told():
    reply = Reply()

    async def program() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await reply.arrival()

    asyncio.run(program())
    reply.settle(RESULT)
    assert reply.wait(0.0) is RESULT


def test_no_message_of_a_stream_is_lost_or_taken_twice():
    stream = Stream()
    count = 20_000

    def produce() -> None:
        for number in range(count):
            stream.add(Item(number, b""))

    producer = threading.Thread(target=produce)
    producer.start()
    taken = [stream.take() for _ in range(count)]
    producer.join()
    assert [item.number for item in taken if isinstance(item, Item)] == list(range(count))


def test_a_stream_on_a_loop():
    stream = Stream()
    count = 2000

    async def program() -> list[object]:
        return [await stream.arrival() for _ in range(count)]

    producer = threading.Thread(target=lambda: [stream.add(Item(number, b"")) for number in range(count)])
    producer.start()
    taken = asyncio.run(program())
    producer.join()
    assert [item.number for item in taken if isinstance(item, Item)] == list(range(count))
