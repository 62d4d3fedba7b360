"""What a channel does with bytes that are no message."""

from __future__ import annotations

import asyncio

import pytest

from runtime._transport.channel import CallError, LoopbackChannel
from runtime._wire.messages.base import ErrorKind, Message, Ok
from runtime._wire.messages.control import GetJob


async def body_of_a_request() -> None:
    left, right = LoopbackChannel.pair(None, lambda _channel, _message: Ok())
    wrong: Message = GetJob("an id that is no bytes")  # type: ignore[arg-type]
    with pytest.raises(CallError) as caught:
        await left.call(wrong, timeout_s=5)
    assert caught.value.kind == ErrorKind.INVALID
    assert "cannot be understood" in str(caught.value)
    assert not right.closed
    assert await left.call(GetJob(b"job"), timeout_s=5) == Ok()
    left.close()


async def body_of_a_one_way_message() -> None:
    left, right = LoopbackChannel.pair(None, lambda _channel, _message: None)
    left.send(GetJob("an id that is no bytes"))  # type: ignore[arg-type]
    closed = asyncio.Event()
    right.on_close = lambda _channel: closed.set()
    await asyncio.wait_for(closed.wait(), 5)


def test_a_request_with_a_field_of_the_wrong_type_is_refused_and_the_connection_lives() -> None:
    asyncio.run(body_of_a_request())


def test_a_one_way_message_that_cannot_be_understood_ends_the_connection() -> None:
    asyncio.run(body_of_a_one_way_message())
