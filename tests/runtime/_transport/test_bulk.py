from __future__ import annotations

import asyncio
import mmap
import os
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from runtime._transport import bulk
from runtime._transport.bulk import Answer as Said
from runtime._transport.bulk import BulkReceiver, BulkSender, Piece
from runtime._transport.channel import CallError, Channel, StreamChannel
from runtime._transport.tcp import connect_tcp, serve_tcp
from runtime._wire.messages.base import ErrorKind, Message, Ok
from runtime._wire.messages.node import ReadDone, ReadObject, ServeObjects

SECRET = b"s" * 32
MIB = 1 << 20
DATA = os.urandom(8 * MIB)
Answer = Callable[[BulkSender, Message], Awaitable[Piece | None]]


class Link:
    """A connection that has been taken over at both ends."""

    def __init__(self) -> None:
        self.closed: list[object] = []
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self.file.write(DATA)
        self.file.flush()
        self.heard: list[Message] = []

    async def open(self, answer: Answer | None = None) -> Link:
        accepted: list[StreamChannel] = []

        def handle(channel: Channel, message: Message) -> Message:
            asyncio.get_running_loop().call_soon(accepted[0].take_over, self.sender)
            return Ok()

        def accept(channel: StreamChannel) -> None:
            channel.handler = handle
            accepted.append(channel)

        self.sender = BulkSender(answer or self._answer, self.closed.append, "the sender")
        self.receiver = BulkReceiver(self.closed.append, "the receiver")
        self._listener = await serve_tcp("127.0.0.1", 0, SECRET, accept, "test")
        client = await connect_tcp("127.0.0.1", self._listener.port, SECRET)
        await client.call(ServeObjects())
        client.take_over(self.receiver)
        return self

    def ask(self, offset: int, length: int, into: memoryview | None = None) -> bulk.Incoming:
        return self.receiver.request(ReadObject(b"o", offset, length), length, into)

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()
        self._listener.stop()
        self.file.close()

    async def _answer(self, _: BulkSender, message: Message) -> Piece | None:
        self.heard.append(message)
        if not isinstance(message, ReadObject):
            return None
        if message.offset > len(DATA):
            raise CallError(ErrorKind.NOT_FOUND, "there is no such part")
        length = min(message.length, len(DATA) - message.offset)
        if message.object_id == b"bytes":
            return Piece(len(DATA), length, data=DATA[message.offset : message.offset + length])
        return Piece(len(DATA), length, message.offset, self.file.fileno(), about=b"about")


def run(scenario: Callable[[Link], Coroutine[Any, Any, None]], answer: Answer | None = None) -> None:
    async def main() -> None:
        link = await Link().open(answer)
        try:
            await scenario(link)
        finally:
            link.close()
        assert set(link.closed) == {link.sender, link.receiver}

    asyncio.run(main())


def test_data_goes_straight_into_the_askers_memory() -> None:
    async def scenario(link: Link) -> None:
        with mmap.mmap(-1, len(DATA)) as pages, memoryview(pages) as view:
            parts = [link.ask(at, MIB, view[at : at + MIB]) for at in range(0, len(DATA), MIB)]
            assert await asyncio.gather(*(part.done for part in parts)) == [Said(len(DATA), b"about")] * 8
            assert pages[:] == DATA
            for part in parts:
                part.let_go()

    run(scenario)


def test_without_memory_of_the_asker_a_buffer_is_made() -> None:
    async def scenario(link: Link) -> None:
        part = link.ask(len(DATA) - 5, MIB)
        assert (await part.done).total_bytes == len(DATA)
        assert part.data == DATA[-5:]

    run(scenario)


def test_bytes_travel_like_files() -> None:
    async def scenario(link: Link) -> None:
        part = link.receiver.request(ReadObject(b"bytes", 1, 7 * MIB), 7 * MIB, None)
        await part.done
        assert part.data == DATA[1 : 7 * MIB + 1]

    run(scenario)


def test_nothing_is_a_length_too() -> None:
    async def scenario(link: Link) -> None:
        first, second = link.ask(len(DATA), MIB), link.ask(0, 3)
        assert (await first.done).total_bytes == len(DATA)
        assert first.data == b""
        await second.done
        assert second.data == DATA[:3]

    run(scenario)


def test_a_refusal_comes_in_its_turn() -> None:
    async def scenario(link: Link) -> None:
        before, refused, after = link.ask(0, MIB), link.ask(len(DATA) + 1, 1), link.ask(5, 5)
        with pytest.raises(CallError, match="no such part") as caught:
            await refused.done
        assert caught.value.kind == ErrorKind.NOT_FOUND
        assert before.done.done()
        await after.done
        assert after.data == DATA[5:10]

    run(scenario)


def test_one_way_messages_come_after_what_was_asked_before() -> None:
    async def scenario(link: Link) -> None:
        part = link.ask(0, len(DATA))
        link.receiver.send(ReadDone(b"o"))
        last = link.ask(0, 1)
        await part.done
        await last.done
        assert [type(message) for message in link.heard] == [ReadObject, ReadDone, ReadObject]

    run(scenario)


def test_memory_that_was_let_go_is_not_written_any_more() -> None:
    async def scenario(link: Link) -> None:
        with mmap.mmap(-1, len(DATA)) as pages:
            view = memoryview(pages)
            given_up, kept = link.ask(0, len(DATA), view), link.ask(7, 7)
            async with asyncio.timeout(60):
                while not any(pages[:100]):  # noqa: ASYNC110 - nothing tells that it is being filled
                    await asyncio.sleep(0)
            given_up.let_go()
            pages[:] = bytes(len(DATA))
            await kept.done
            assert kept.data == DATA[7:14]
            assert pages[:] == bytes(len(DATA))
            assert given_up.done.cancelled()

    run(scenario)


def test_who_waits_hears_of_the_end() -> None:
    async def scenario(link: Link) -> None:
        part = link.ask(0, len(DATA))
        link.sender.close()
        with pytest.raises(CallError) as caught:
            await part.done
        assert caught.value.kind == ErrorKind.UNAVAILABLE
        with pytest.raises(CallError):
            link.ask(0, 1)

    run(scenario)


def test_a_sender_that_stays_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "STALL_S", 0.05)

    async def never(_: BulkSender, __: Message) -> Piece | None:
        await asyncio.sleep(1000)
        return None

    async def scenario(link: Link) -> None:
        with pytest.raises(CallError, match="sent nothing"):
            await link.ask(0, 1).done

    run(scenario, never)


def test_more_than_was_asked_for_is_refused() -> None:
    async def generous(_: BulkSender, __: Message) -> Piece | None:
        return Piece(10, 10, data=b"0123456789")

    async def scenario(link: Link) -> None:
        with pytest.raises(CallError, match="does not speak"):
            await link.ask(0, 9).done

    run(scenario, generous)


def test_a_file_that_is_too_short_closes_the_connection() -> None:
    async def scenario(link: Link) -> None:
        os.ftruncate(link.file.fileno(), MIB)
        with pytest.raises(CallError):
            await link.ask(0, len(DATA)).done

    run(scenario)
