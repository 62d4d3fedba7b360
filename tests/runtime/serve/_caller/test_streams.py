"""Streams, HTTP bodies and WebSockets between a caller and stand-in replicas, over real sockets."""

from __future__ import annotations

import asyncio

import pytest

from runtime.exceptions import ActorDiedError
from runtime.serve._caller.exchange import Exchange
from runtime.serve._wire.messages import Chunk, End, Event, Failure, Http, Item, Meta, Start
from tests.runtime.serve._caller.site import call, on_a_site, until


@on_a_site
async def test_items_of_a_stream_come_in_order(site):
    await site.add()
    exchange = await site.queue.begin(call("count", 300, stream=True))
    got = []
    while isinstance(message := await exchange.receive(), Item):
        got.append(exchange.load(message.body))
    assert isinstance(message, End)
    assert got == list(range(300))


@on_a_site
async def test_a_stream_waits_for_a_slow_reader(site):
    replica = await site.add()
    exchange = await site.queue.begin(call("count", 64, 100_000, stream=True))
    await until(lambda: replica.items_sent >= 10)
    await asyncio.sleep(0.05)
    assert replica.items_sent < 16, "a window of 1 MiB is full"
    count = 0
    while isinstance(await exchange.receive(), Item):
        count += 1
    assert count == 64


@on_a_site
async def test_a_stream_that_fails_gives_its_items_first(site):
    await site.add()
    exchange = await site.queue.begin(call("count_and_fail", 2, stream=True))
    kinds = [type(await exchange.receive()) for _ in range(3)]
    assert kinds == [Item, Item, Failure]


def http(
    kind: str = "http", body: bytes = b"", more: bool = False, method: str = "POST", path: str = "/x"
) -> Http:
    address = ("127.0.0.1", 1)
    meta = Meta("r", "app", "/")
    return Http(
        0, meta, kind, method, "http", "1.1", path, path.encode(), b"", "", [], address, address, body, more
    )


@on_a_site
async def test_bodies_larger_than_the_window_pass_both_ways(site):
    await site.add()
    exchange = await site.queue.begin(http(body=b"first", more=True))
    parts = [bytes([number]) * 300_000 for number in range(10)]

    async def send() -> None:
        for part in parts:
            await exchange.send(part, more=True)
        await exchange.send(b"", more=False)

    sending = asyncio.create_task(send())
    start = await exchange.receive()
    assert isinstance(start, Start)
    body = bytearray()
    while True:
        message = await exchange.receive()
        assert isinstance(message, Chunk)
        body += message.body
        if not message.more:
            break
    await sending
    assert bytes(body) == b"first" + b"".join(parts)


async def statuses(exchange: Exchange) -> list[int]:
    """The status of an answer that is read to its end."""
    seen = []
    while True:
        message = await exchange.receive()
        if isinstance(message, Start):
            seen.append(message.status)
        elif isinstance(message, Chunk) and not message.more:
            return seen


@on_a_site
async def test_an_idempotent_request_is_repeated_once_when_its_replica_dies(site):
    first = await site.add(slots=1)
    exchanges = [await site.queue.begin(http(method="GET", path="/wait"))]
    await until(lambda: first.begun)
    first.close()
    site.replicas.remove(first)
    second = await site.add(slots=1)
    await until(lambda: second.begun)
    second.code.gate.set()
    assert await statuses(exchanges[0]) == [200]
    assert exchanges[0].replica == second.name


@on_a_site
async def test_a_request_that_two_replicas_died_of_fails(site):
    exchange = None
    for _ in range(2):
        replica = await site.add(slots=1)
        exchange = exchange or await site.queue.begin(http(method="GET", path="/wait"))
        await until(lambda replica=replica: replica.begun)
        replica.close()
        site.replicas.remove(replica)
        site.publish()
    with pytest.raises(ActorDiedError):
        await exchange.receive()


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_other_requests_are_not_repeated(method):
    """A POST never, and a GET whose answer has begun neither."""

    @on_a_site
    async def run(site):
        replica = await site.add(slots=1)
        path = "/wait" if method == "POST" else "/begin"
        exchange = await site.queue.begin(http(method=method, path=path))
        await until(lambda: replica.begun)
        if path == "/begin":
            assert isinstance(await exchange.receive(), Start)
        replica.close()
        site.replicas.remove(replica)
        await site.add()
        with pytest.raises(ActorDiedError):
            await exchange.receive()

    run()


@on_a_site
async def test_the_body_of_a_refused_request_goes_where_it_is_taken(site):
    replica = await site.add()
    replica.refuse_next = 3
    exchange = await site.queue.begin(http(body=b"1", more=True))
    await until(lambda: exchange.refusals == 3)
    await exchange.send(b"2", more=False)
    body = b""
    while not isinstance(message := await exchange.receive(), Chunk) or message.more:
        body += message.body if isinstance(message, Chunk) else b""
    assert body == b"12"
    with pytest.raises(RuntimeError, match="has ended"):
        await exchange.receive()


@on_a_site
async def test_events_of_a_websocket_pass_both_ways(site):
    await site.add()
    exchange = await site.queue.begin(http("websocket", more=True))
    assert await exchange.receive() == Event(exchange.number, {"type": "websocket.accept"})
    await exchange.send_event({"type": "websocket.receive", "text": "hello"})
    echo = await exchange.receive()
    assert isinstance(echo, Event)
    assert echo.event["text"] == "hello"
    await exchange.send(b"", more=False)
    assert isinstance(await exchange.receive(), End)


@on_a_site
async def test_sending_to_a_replica_that_dies_ends(site):
    replica = await site.add()
    exchange = await site.queue.begin(http(body=b"", more=True))
    await until(lambda: replica.begun)
    replica._bodies.clear()  # it reads nothing: its connection breaks at the first part
    for _ in range(20):
        await exchange.send(bytes(200_000), more=True)
    with pytest.raises(ActorDiedError):
        await exchange.receive()
