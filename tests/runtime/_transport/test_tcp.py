"""Channels over real TCP: nothing is read from whoever does not prove the secret."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from runtime._transport.channel import CallError, Channel, StreamChannel
from runtime._transport.tcp import (
    UNACKNOWLEDGED_S,
    TcpListener,
    connect_tcp,
    notice_vanished_machine,
    refuses,
    serve_tcp,
)
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


@pytest.mark.parametrize(("said", "warnings"), [(b"", 0), (b"hello", 1), (b"x" * GREETING_BYTES, 1)])
def test_who_only_looks_if_anybody_listens_is_no_trouble(
    said: bytes, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        server = Server()
        port = await server.start()
        for linger in (b"\0" * 8, b"\1\0\0\0\0\0\0\0"):  # ends in order, and by a reset
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                client.sendall(said)
                await eventually_served(port)
            await eventually_served(port)
        server.stop()

    asyncio.run(scenario())
    assert len(caplog.records) == 2 * warnings


async def eventually_served(port: int) -> None:
    """Whoever came before has been dealt with by then."""
    channel = await connect_tcp("127.0.0.1", port, SECRET)
    assert await channel.call(KvGet("n", b"1")) == KvValue(b"x")
    channel.close()


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


def test_only_a_port_where_nothing_listens_refuses_connections() -> None:
    async def scenario() -> None:
        server = Server()
        port = await server.start()
        assert not await refuses(f"127.0.0.1:{port}")
        server.stop()
        assert await refuses(f"127.0.0.1:{port}")
        with (
            socket.socket() as full,
            socket.socket() as first,
        ):  # as many as its backlog holds, and never accepted
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            first.connect(full.getsockname())
            assert not await refuses(f"127.0.0.1:{full.getsockname()[1]}", timeout_s=0.2)
        assert not await refuses("")

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


def test_a_wrong_secret_is_told_what_to_do() -> None:
    async def scenario() -> None:
        server = Server()
        port = await server.start()
        for secret in (b"", b"x" * 32, SECRET + b"s", SECRET[:-1]):
            with pytest.raises(CallError, match=f"the store at 127.0.0.1:{port}: .*secret file") as caught:
                await connect_tcp("127.0.0.1", port, secret, name="the store")
            assert caught.value.kind == ErrorKind.INVALID
        server.stop()

    asyncio.run(scenario())


def test_another_program_listens_there() -> None:
    async def scenario() -> None:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n" * 10)
            writer.close()

        other = await asyncio.start_server(answer, "127.0.0.1", 0)
        with pytest.raises(CallError, match="another program"):
            await connect_tcp("127.0.0.1", other.sockets[0].getsockname()[1], SECRET)
        other.close()

    asyncio.run(scenario())


def test_a_port_that_never_answers() -> None:
    async def scenario() -> None:
        with socket.socket() as silent:  # accepts in the kernel, never answers
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            with pytest.raises(CallError) as caught:
                await connect_tcp("127.0.0.1", silent.getsockname()[1], SECRET, timeout_s=0.3)
        assert caught.value.kind == ErrorKind.TIMEOUT

    asyncio.run(scenario())


def test_a_port_in_use_is_named() -> None:
    async def scenario() -> None:
        server = Server()
        port = await server.start()
        with pytest.raises(OSError, match=f"port {port} .* in use .*another port") as caught:
            await serve_tcp("127.0.0.1", port, SECRET, lambda _: None, "test")
        assert caught.value.errno == errno.EADDRINUSE
        server.stop()

    asyncio.run(scenario())


def test_an_address_that_is_not_ours_is_named() -> None:
    async def scenario() -> None:
        with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1"):
            await serve_tcp("192.0.2.1", 0, SECRET, lambda _: None, "test")

    asyncio.run(scenario())


def test_who_leaves_is_heard_to_the_last_word() -> None:
    async def scenario() -> None:
        server = Server()
        port = await server.start()
        client = await connect_tcp("127.0.0.1", port, SECRET)
        await client.call(AgentHello(b"n"))
        for number in range(50):
            client.send(FreeObjects([bytes([number])]))
            server.channels[0].send(FreeObjects([bytes([number])]))  # the client will not read it any more
        await client.leave()
        assert len(server.heard) == 51
        assert server.channels[0].closed
        assert server.channels[0].peer_left
        server.stop()

    asyncio.run(scenario())


def test_leaving_a_peer_that_stands_still_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("runtime._transport.channel.LINGER_S", 0.05)
        server = Server()
        port = await server.start()
        client = await connect_tcp("127.0.0.1", port, SECRET)
        await client.call(AgentHello(b"n"))
        server.channels[0]._transport.pause_reading()  # type: ignore[union-attr]
        await client.leave()
        server.stop()

    asyncio.run(scenario())


def test_a_connection_that_breaks_is_no_good_bye() -> None:
    async def scenario() -> None:
        server = Server()
        port = await server.start()
        client = await connect_tcp("127.0.0.1", port, SECRET)
        await client.call(AgentHello(b"n"))
        ended = asyncio.Event()
        server.channels[0].on_close = lambda _: ended.set()
        client.close()
        await ended.wait()
        assert not server.channels[0].peer_left
        server.stop()

    asyncio.run(scenario())


def test_a_server_that_closes_ends_the_calls_of_its_client() -> None:
    async def scenario() -> None:
        server = Server()
        port = await server.start()
        client = await connect_tcp("127.0.0.1", port, SECRET)
        await client.call(AgentHello(b"n"))
        server.channels[0].handler = lambda *_: asyncio.Event().wait()  # type: ignore[assignment,return-value]
        waiting = asyncio.ensure_future(client.call(AgentHello(b"n"), None))
        await asyncio.sleep(0)
        server.channels[0].close()
        with pytest.raises(CallError) as caught:
            await waiting
        assert caught.value.kind == ErrorKind.UNAVAILABLE
        client.send(FreeObjects([b"nobody hears it"]))
        server.stop()

    asyncio.run(scenario())


def test_a_peer_that_reads_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("runtime._transport.channel.MAX_UNSENT_BYTES", 1 << 20)
        server = Server()
        port = await server.start()
        client = await connect_tcp("127.0.0.1", port, SECRET)
        await client.call(AgentHello(b"n"))
        server.channels[0]._transport.pause_reading()  # type: ignore[union-attr]
        ended = asyncio.Event()
        client.on_close = lambda _: ended.set()
        for _ in range(64):
            client.send(FreeObjects([bytes(1 << 20)]))
        await ended.wait()
        server.stop()

    asyncio.run(scenario())


def test_the_kernel_watches_for_machines_that_vanish() -> None:
    async def scenario() -> None:
        server = Server()
        port = await server.start()
        client = await connect_tcp("127.0.0.1", port, SECRET)
        notice_vanished_machine(client)
        assert client.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert client.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1000 * UNACKNOWLEDGED_S
        client.close()
        server.stop()
        notice_vanished_machine(client)  # closed meanwhile: nothing to do

    asyncio.run(scenario())
