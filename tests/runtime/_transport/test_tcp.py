"""Channels over real TCP: nothing is read from whoever does not prove the secret."""

from __future__ import annotations

import asyncio

import pytest

from runtime._transport.channel import CallError, Channel, StreamChannel
from runtime._transport.tcp import TcpListener, connect_tcp, serve_tcp
from runtime._wire.framing import encode_frame
from runtime._wire.handshake import GREETING_BYTES
from runtime._wire.messages import codec
from runtime._wire.messages.base import ErrorKind, Message, Ok
from runtime._wire.messages.control import KvGet, KvValue
from runtime._wire.messages.node import AgentHello, FreeObjects

SECRET = b"s" * 32


class Server:
    """A listener that remembers what it was told."""

    def __init__(self) -> None:
        self.channels: list[StreamChannel] = []
        self.heard: list[Message] = []
        self.listener: TcpListener | None = None

    async def start(self) -> int:
        self.listener = await serve_tcp("127.0.0.1", 0, SECRET, self._accept, "test")
        return self.listener.port

    def stop(self) -> None:
        assert self.listener is not None
        self.listener.stop()
        for channel in self.channels:
            channel.close()

    def _accept(self, channel: StreamChannel) -> None:
        channel.handler = self._handle
        self.channels.append(channel)

    def _handle(self, channel: Channel, message: Message) -> Message | None:
        self.heard.append(message)
        if isinstance(message, KvGet):
            return KvValue(b"x" * int(message.key))
        return Ok()


def test_both_sides_prove_the_secret_and_then_talk() -> None:
    async def scenario() -> None:
        server = Server()
        port = await server.start()
        client = await connect_tcp("127.0.0.1", port, SECRET)
        assert isinstance(await client.call(AgentHello(b"n")), Ok)
        client.close()
        server.stop()

    asyncio.run(scenario())


def test_large_answers_arrive_whole() -> None:
    async def scenario() -> None:
        server = Server()
        port = await server.start()
        client = await connect_tcp("127.0.0.1", port, SECRET)
        answer = await client.call(KvGet("n", b"%d" % (3 << 20)))
        assert answer.value == b"x" * (3 << 20)
        client.close()
        server.stop()

    asyncio.run(scenario())


def test_another_secret_is_refused() -> None:
    async def scenario() -> None:
        server = Server()
        port = await server.start()
        with pytest.raises(CallError) as caught:
            await connect_tcp("127.0.0.1", port, b"t" * 32)
        assert caught.value.kind in (ErrorKind.INVALID, ErrorKind.UNAVAILABLE)
        assert server.channels == []
        server.stop()

    asyncio.run(scenario())


def test_nothing_is_read_before_the_proof() -> None:
    async def scenario() -> None:
        server = Server()
        port = await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await reader.readexactly(GREETING_BYTES)
        writer.write(encode_frame(codec.encode(FreeObjects([b"o"]))) * 10)
        assert await reader.read() == b""
        assert server.heard == []
        writer.close()
        server.stop()

    asyncio.run(scenario())


def test_nobody_listening_is_unavailable() -> None:
    async def scenario() -> None:
        server = Server()
        port = await server.start()
        server.stop()
        with pytest.raises(CallError) as caught:
            await connect_tcp("127.0.0.1", port, SECRET)
        assert caught.value.kind == ErrorKind.UNAVAILABLE

    asyncio.run(scenario())


def test_frames_that_follow_the_proof_at_once_are_not_lost() -> None:
    async def scenario() -> None:
        server = Server()
        port = await server.start()
        client = await connect_tcp("127.0.0.1", port, SECRET)
        for number in range(50):
            client.send(FreeObjects([bytes([number])]))
        await client.call(AgentHello(b"n"))
        assert len(server.heard) == 51
        client.close()
        server.stop()

    asyncio.run(scenario())
