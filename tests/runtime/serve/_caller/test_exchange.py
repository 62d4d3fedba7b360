"""One request on its own: what comes from a replica is given to it by hand."""

from __future__ import annotations

import asyncio

from runtime.serve._caller.exchange import Exchange
from runtime.serve._core.published import Target
from runtime.serve._wire.messages import WINDOW_BYTES, Chunk, Event, Http, Message, Meta, Start, Window


class Replica:
    """What a request is sent to; keeps what else it says."""

    def __init__(self) -> None:
        self.target = Target("app#D#1", b"", "aa", "", "127.0.0.1", 1, 5)
        self.heard: list[Message] = []

    def send(self, message: Message) -> None:
        self.heard.append(message)


class Queue:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    def forget(self, exchange: Exchange) -> None:
        raise AssertionError("it is sent already")


async def answered(*messages: Start | Chunk | Event) -> tuple[Exchange, Replica]:
    """A request whose answer begins like this."""
    request = Http(
        0, Meta("id"), "http", "GET", "http", "1.1", "/", b"/", b"", "", [], None, None, b"", False
    )
    exchange, replica = Exchange(Queue(), request), Replica()
    exchange.sent(replica, 1)
    for message in messages:
        if isinstance(message, Chunk) and not message.more:
            exchange.finished(message)
        else:
            exchange.came(message)
    return exchange, replica


def test_what_has_arrived_is_taken_without_waiting_as_far_as_there_is_room():
    async def use():
        exchange, _ = await answered(
            Start(1, 200, []), Chunk(1, b"12345", True), Chunk(1, b"678", True), Chunk(1, b"", False)
        )
        assert exchange.arrived(100) is None, "the start of the response is no chunk"
        assert await exchange.receive() == Start(1, 200, [])
        assert exchange.arrived(4) is None
        assert exchange.arrived(5) == Chunk(1, b"12345", True)
        assert await exchange.receive() == Chunk(1, b"678", True)
        assert exchange.arrived(0) == Chunk(1, b"", False)
        assert exchange.arrived(100) is None

    asyncio.run(use())


def test_the_replica_hears_of_chunks_that_are_taken_without_waiting():
    async def use():
        size = WINDOW_BYTES // 2
        exchange, replica = await answered(Chunk(1, bytes(size), True), Chunk(1, bytes(size), True))
        assert exchange.arrived(size) is not None
        assert await exchange.receive()
        assert replica.heard == [Window(1, size), Window(1, size)]

    asyncio.run(use())


def test_the_replica_hears_of_events_that_are_taken():
    async def use():
        size = WINDOW_BYTES // 2
        exchange, replica = await answered(Event(1, {"type": "websocket.send", "bytes": bytes(size)}))
        assert (await exchange.receive()).event["type"] == "websocket.send"
        assert replica.heard == [Window(1, size)]

    asyncio.run(use())
