"""What a channel does with bytes that are no message, and with messages that cannot be sent."""

from __future__ import annotations

import asyncio

import pytest

from runtime._transport import channel as channel_module
from runtime._transport.channel import CallError, LoopbackChannel
from runtime._wire.messages.base import ErrorKind, Message, Ok
from runtime._wire.messages.control import GetJob, KvPut
from runtime._wire.messages.node import ListState, StateRows

LIMIT_BYTES = 1000


async def body_of_a_request() -> None:
    left, right = LoopbackChannel.pair(None, lambda _channel, _message: Ok())
    wrong: Message = GetJob("an id that is no bytes")  # type: ignore[arg-type]
    with pytest.raises(CallError) as caught:
        await left.call(wrong, timeout_s=60)
    assert caught.value.kind == ErrorKind.INVALID
    assert "cannot be understood" in str(caught.value)
    assert not right.closed
    assert await left.call(GetJob(b"job"), timeout_s=60) == Ok()
    left.close()


async def body_of_a_one_way_message() -> None:
    left, right = LoopbackChannel.pair(None, lambda _channel, _message: None)
    left.send(GetJob("an id that is no bytes"))  # type: ignore[arg-type]
    closed = asyncio.Event()
    right.on_close = lambda _channel: closed.set()
    await asyncio.wait_for(closed.wait(), 60)


def test_a_request_with_a_field_of_the_wrong_type_is_refused_and_the_connection_lives() -> None:
    asyncio.run(body_of_a_request())


def test_a_one_way_message_that_cannot_be_understood_ends_the_connection() -> None:
    asyncio.run(body_of_a_one_way_message())


@pytest.fixture
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of at most `LIMIT_BYTES`."""
    monkeypatch.setattr(channel_module, "MAX_FRAME_BYTES", LIMIT_BYTES)


async def body_of_too_large_requests() -> None:
    left, right = LoopbackChannel.pair(None, lambda _channel, _message: Ok())
    large = KvPut("", b"key", bytes(LIMIT_BYTES))
    with pytest.raises(CallError, match=r"KvPut has 10\d\d bytes.*at most 1000.*references") as caught:
        await left.call(large, timeout_s=60)
    assert caught.value.kind == ErrorKind.INVALID
    with pytest.raises(CallError, match="at most 1000"):
        left.send(large)
    assert await left.call(GetJob(b"job"), timeout_s=60) == Ok()
    left.close()
    assert right is left.peer


@pytest.mark.parametrize(
    ("rows", "words"),
    [([{"x": "y" * LIMIT_BYTES}], "StateRows has 10.. bytes.*at most 1000"), ([{"x": object()}], "object")],
    ids=["too-large", "no-type"],
)
def test_a_reply_that_cannot_be_sent_becomes_an_error(
    rows: list[dict[str, object]], words: str, small_frames: None
) -> None:
    async def body() -> None:
        async def later() -> StateRows:
            return StateRows(rows)

        left, _ = LoopbackChannel.pair(
            None, lambda _, message: later() if message.everywhere else StateRows(rows)
        )
        for everywhere in (False, True):
            with pytest.raises(CallError, match=words) as caught:
                await left.call(ListState("tasks", everywhere), timeout_s=60)
            assert caught.value.kind == ErrorKind.INVALID
        assert not left.closed
        left.close()

    asyncio.run(body())


def test_a_request_over_the_limit_fails_alone(small_frames: None) -> None:
    asyncio.run(body_of_too_large_requests())
