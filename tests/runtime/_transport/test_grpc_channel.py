from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import grpc.aio
import pytest

from runtime._transport.channel import CallError, Channel, Handler
from runtime._transport.grpc_channel import METHOD, SERVICE
from runtime._transport.grpc_client import AUTH, GrpcClientChannel, connect_grpc
from runtime._transport.grpc_server import GrpcServer, serve_grpc
from runtime._wire.messages.base import Message
from runtime._wire.messages.control import KvGet, KvPut, KvValue, StopNode, WorkersDead

SECRET = b"s" * 32


@dataclass
class Side:
    """A server that answers KvGet with the key, and remembers the rest."""

    channels: list[Channel] = field(default_factory=list)
    closed: list[Channel] = field(default_factory=list)
    seen: list[Message] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def attach(self, channel: Channel) -> None:
        channel.handler = self.handle
        channel.on_close = self.closed.append
        self.channels.append(channel)

    def handle(self, _: Channel, message: Message) -> object:
        if isinstance(message, KvGet):
            if message.namespace == "slow":
                return self._slow(message)
            return KvValue(message.key)
        if isinstance(message, KvPut):
            raise CallError("busy", "come back later")
        self.seen.append(message)
        return None

    async def _slow(self, message: KvGet) -> KvValue:
        await self.gate.wait()
        return KvValue(message.key)


@asynccontextmanager
async def server() -> AsyncIterator[tuple[Side, GrpcServer, Callable[..., object]]]:
    side = Side()
    listening = await serve_grpc("127.0.0.1", 0, SECRET, side.attach)
    opened: list[GrpcClientChannel] = []

    async def connect(secret: bytes = SECRET, handler: Handler | None = None) -> GrpcClientChannel:
        channel = await connect_grpc(f"127.0.0.1:{listening.port}", secret, handler, "the control store", 5.0)
        opened.append(channel)
        return channel

    try:
        yield side, listening, connect
    finally:
        for channel in opened:
            channel.close()
            await channel.drained()
        await listening.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


def test_calls_and_answers() -> None:
    async def main() -> None:
        async with server() as (_, _, connect):
            channel = await connect()
            assert (await channel.call(KvGet("n", b"k"))).value == b"k"
            answers = await asyncio.gather(*(channel.call(KvGet("n", b"%d" % i)) for i in range(200)))
            assert [answer.value for answer in answers] == [b"%d" % i for i in range(200)]

    asyncio.run(main())


def test_refusals_arrive_as_they_are() -> None:
    async def main() -> None:
        async with server() as (_, _, connect):
            channel = await connect()
            with pytest.raises(CallError) as caught:
                await channel.call(KvPut("n", b"k", b"v"))
            assert (caught.value.kind, caught.value.message) == ("busy", "come back later")

    asyncio.run(main())


def test_one_way_messages_in_order_and_both_ways() -> None:
    async def main() -> None:
        heard: list[Message] = []

        def hear(_: Channel, message: Message) -> None:
            heard.append(message)

        async with server() as (side, _, connect):
            channel = await connect(handler=hear)
            await until(lambda: bool(side.channels))
            sent: list[Message] = [StopNode(str(number)) for number in range(300)]
            for message in sent:
                channel.send(message)
                side.channels[0].send(message)
            await until(lambda: len(side.seen) == 300 and len(heard) == 300)
            assert side.seen == sent
            assert heard == sent

    asyncio.run(main())


def test_large_messages() -> None:
    async def main() -> None:
        async with server() as (_, _, connect):
            channel = await connect()
            big = bytes(20 * 2**20)
            assert (await channel.call(KvGet("n", big))).value == big

    asyncio.run(main())


@pytest.mark.parametrize("secret", [b"", b"x" * 32, SECRET + b"s", SECRET[:-1]])
def test_a_wrong_secret_is_refused_before_anything_is_read(secret: bytes) -> None:
    async def main() -> None:
        async with server() as (side, _, connect):
            with pytest.raises(CallError) as caught:
                await connect(secret)
            assert caught.value.kind == AUTH
            assert "secret file" in caught.value.message
            assert secret.hex() not in caught.value.message or not secret
            assert not side.channels

    asyncio.run(main())


def test_no_proof_at_all_is_refused() -> None:
    async def main() -> None:
        async with server() as (side, listening, _):
            async with grpc.aio.insecure_channel(
                f"127.0.0.1:{listening.port}", options=(("grpc.enable_http_proxy", 0),)
            ) as raw:
                call = raw.stream_stream(f"/{SERVICE}/{METHOD}")()
                assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
            assert not side.channels

    asyncio.run(main())


def test_nobody_listens() -> None:
    async def main() -> None:
        with socket.socket() as bound:  # bound but not listening: the port is ours, and refuses
            bound.bind(("127.0.0.1", 0))
            with pytest.raises(CallError) as caught:
                await connect_grpc(
                    f"127.0.0.1:{bound.getsockname()[1]}", SECRET, None, "the control store", 5.0
                )
        assert caught.value.kind == "unavailable"
        assert "is it running?" in caught.value.message

    asyncio.run(main())


def test_somebody_else_listens() -> None:
    async def main() -> None:
        with socket.socket() as silent:  # accepts in the kernel, never answers
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            with pytest.raises(CallError) as caught:
                await connect_grpc(
                    f"127.0.0.1:{silent.getsockname()[1]}", SECRET, None, "the control store", 0.3
                )
        assert caught.value.kind in ("timeout", "unavailable")

    asyncio.run(main())


def test_a_port_in_use() -> None:
    async def main() -> None:
        async with server() as (side, listening, _):
            with pytest.raises(OSError, match=f"port {listening.port} .* in use") as caught:
                await serve_grpc("127.0.0.1", listening.port, SECRET, side.attach)
            assert caught.value.errno == errno.EADDRINUSE

    asyncio.run(main())


def test_an_address_that_is_not_ours() -> None:
    async def main() -> None:
        with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1"):
            await serve_grpc("192.0.2.1", 0, SECRET, lambda _: None)

    asyncio.run(main())


def test_the_server_notices_a_client_that_closes_and_gets_its_last_words() -> None:
    async def main() -> None:
        async with server() as (side, _, connect):
            channel = await connect()
            for number in range(50):
                channel.send(StopNode(str(number)))
            channel.close()
            await channel.drained()
            await until(lambda: bool(side.closed))
            assert len(side.seen) == 50
            assert side.channels[0].peer_left

    asyncio.run(main())


def test_a_connection_that_breaks_is_no_good_bye() -> None:
    async def main() -> None:
        async with server() as (side, _, connect):
            channel = await connect()
            await channel.call(KvGet("n", b"k"))
            channel._pump.cancel()
            await until(lambda: bool(side.closed))
            assert not side.channels[0].peer_left

    asyncio.run(main())


def test_the_client_notices_a_server_that_closes() -> None:
    async def main() -> None:
        async with server() as (side, _, connect):
            channel = await connect()
            waiting = asyncio.ensure_future(channel.call(KvGet("slow", b"k"), None))
            closed: list[Channel] = []
            channel.on_close = closed.append
            await until(lambda: bool(side.channels))
            await asyncio.sleep(0)
            side.channels[0].send(WorkersDead([b"w"]))
            side.channels[0].close()
            with pytest.raises(CallError) as caught:
                await waiting
            assert caught.value.kind == "unavailable"
            assert closed == [channel]
            with pytest.raises(CallError):
                await channel.call(KvGet("n", b"k"))
            channel.send(StopNode("nobody hears it"))

    asyncio.run(main())


def test_a_stopped_server_ends_its_streams() -> None:
    async def main() -> None:
        async with server() as (side, listening, connect):
            channel = await connect()
            await listening.stop()
            await until(lambda: channel.closed)
            assert side.channels[0].closed

    asyncio.run(main())


def test_a_closed_stream_still_ends_the_calls_of_the_other_side() -> None:
    """A call from the server that the client never answers fails when the client goes."""

    async def main() -> None:
        async def never(_: Channel, __: Message) -> Message:
            await asyncio.Event().wait()  # ends with the test's loop
            raise AssertionError

        async with server() as (side, _, connect):
            channel = await connect(handler=never)
            waiting = asyncio.ensure_future(side.channels[0].call(KvGet("n", b"k"), None))
            await asyncio.sleep(0.05)
            channel.close()
            with pytest.raises(CallError):
                await waiting

    asyncio.run(main())
