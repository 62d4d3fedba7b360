"""The reconnecting client, in virtual time over simulated links."""

from __future__ import annotations

import asyncio

import pytest

from runtime._clients.control import ControlClient
from runtime._transport.channel import CallError, Channel, Handler
from runtime._wire.messages.base import Message
from runtime._wire.messages.control import KvGet, KvValue, StopNode
from tests.sim.world import SimLink, run_virtual


class Server:
    """Answers KvGet; can be down, refuse, swallow calls, and drop its connections."""

    def __init__(self) -> None:
        self.is_up = True
        self.refusal: CallError | None = None
        self.swallows = False
        self.attempts = 0
        self.seen: list[Message] = []
        self.links: list[SimLink] = []

    async def connect(self, handler: Handler) -> Channel:
        self.attempts += 1
        await asyncio.sleep(0.001)
        if self.refusal is not None:
            raise self.refusal
        if not self.is_up:
            raise CallError("unavailable", "nobody there")
        ours, theirs = SimLink(handler, "client"), SimLink(self.handle, "server")
        ours.peer, theirs.peer = theirs, ours
        self.links.append(theirs)
        return ours

    def handle(self, _: Channel, message: Message) -> object:
        self.seen.append(message)
        if isinstance(message, KvGet):
            if self.swallows:
                return asyncio.get_running_loop().create_future()
            if message.namespace == "bad":
                raise CallError("invalid", "no")
            return KvValue(message.key)
        return None

    def drop(self) -> None:
        for link in self.links:
            link.close()
        self.links.clear()


def test_calls_go_through() -> None:
    async def main() -> None:
        server = Server()
        client = ControlClient(server.connect)
        await client.start()
        assert client.connected
        assert (await client.call(KvGet("n", b"k"))).value == b"k"
        with pytest.raises(CallError) as caught:
            await client.call(KvGet("bad", b"k"))
        assert caught.value.kind == "invalid"
        await client.close()

    run_virtual(main())


def test_the_first_connection_is_tried_until_the_deadline() -> None:
    async def main() -> None:
        server = Server()
        server.is_up = False
        client = ControlClient(server.connect)
        loop = asyncio.get_running_loop()
        loop.call_later(3, setattr, server, "is_up", True)
        await client.start(timeout_s=10)
        assert server.attempts > 3
        await client.close()

        server.is_up = False
        before = loop.time()
        with pytest.raises(CallError) as caught:
            await ControlClient(server.connect).start(timeout_s=5)
        assert caught.value.kind == "unavailable"
        assert loop.time() - before <= 5.1

    run_virtual(main())


def test_a_refused_secret_is_final() -> None:
    async def main() -> None:
        server = Server()
        server.refusal = CallError("auth", "wrong secret")
        with pytest.raises(CallError) as caught:
            await ControlClient(server.connect).start()
        assert caught.value.kind == "auth"
        assert server.attempts == 1

    run_virtual(main())


def test_an_interrupted_call_is_repeated_over_the_next_connection() -> None:
    async def main() -> None:
        server = Server()
        client = ControlClient(server.connect)
        await client.start()
        server.swallows = True
        waiting = asyncio.ensure_future(client.call(KvGet("n", b"k")))
        await asyncio.sleep(0.1)
        server.swallows = False
        server.drop()
        assert (await waiting).value == b"k"
        assert len(server.seen) == 2
        await client.close()

    run_virtual(main())


def test_without_retry_an_interrupted_call_fails() -> None:
    async def main() -> None:
        server = Server()
        client = ControlClient(server.connect)
        await client.start()
        server.swallows = True
        waiting = asyncio.ensure_future(client.call(KvGet("n", b"k"), retry=False))
        await asyncio.sleep(0.1)
        server.drop()
        with pytest.raises(CallError) as caught:
            await waiting
        assert caught.value.kind == "unavailable"
        await client.close()

    run_virtual(main())


def test_a_call_keeps_its_deadline_over_reconnects() -> None:
    async def main() -> None:
        server = Server()
        client = ControlClient(server.connect, reconnect_timeout_s=None)
        await client.start()
        server.is_up = False
        server.drop()
        await asyncio.sleep(0.1)
        loop = asyncio.get_running_loop()
        before = loop.time()
        with pytest.raises(CallError) as caught:
            await client.call(KvGet("n", b"k"), timeout_s=4)
        assert caught.value.kind == "timeout"
        assert loop.time() - before == pytest.approx(4, abs=0.01)
        await client.close()

    run_virtual(main())


def test_registers_on_each_connection_before_anything_else() -> None:
    async def main() -> None:
        server = Server()

        async def register(channel: Channel) -> None:
            await channel.call(KvGet("register", b""))

        client = ControlClient(server.connect, on_connected=register)
        await client.start()
        server.drop()
        answer = await client.call(KvGet("n", b"k"))
        assert answer.value == b"k"
        assert [message.namespace for message in server.seen if isinstance(message, KvGet)] == [
            "register",
            "register",
            "n",
        ]
        await client.close()

    run_virtual(main())


def test_one_way_messages_wait_for_the_next_connection() -> None:
    async def main() -> None:
        server = Server()
        client = ControlClient(server.connect)
        await client.start()
        server.drop()
        await asyncio.sleep(0)
        client.send(StopNode("kept"))
        client.send(StopNode("dropped"), keep=False)
        await asyncio.sleep(1)
        client.send(StopNode("direct"))
        await asyncio.sleep(1)
        assert server.seen == [StopNode("kept"), StopNode("direct")]
        await client.close()

    run_virtual(main())


def test_gives_up_once_after_the_timeout() -> None:
    async def main() -> None:
        server = Server()
        lost: list[str] = []
        client = ControlClient(server.connect, reconnect_timeout_s=7.0, on_lost=lost.append)
        await client.start()
        server.is_up = False
        server.drop()
        await asyncio.sleep(6)
        assert not lost
        waiting = asyncio.ensure_future(client.call(KvGet("n", b"k"), timeout_s=None))
        await asyncio.sleep(2)
        (reason,) = lost
        assert "away for 7 s" in reason
        with pytest.raises(CallError) as caught:
            await waiting
        assert caught.value.kind == "unavailable"
        attempts = server.attempts
        await asyncio.sleep(60)
        assert server.attempts == attempts
        with pytest.raises(CallError):
            await client.call(KvGet("n", b"k"))
        await client.close()

    run_virtual(main())


def test_a_refusal_while_reconnecting_is_final() -> None:
    async def main() -> None:
        server = Server()
        lost: list[str] = []

        async def register(channel: Channel) -> None:
            if len(server.seen) > 1:
                raise CallError("invalid", "declared dead")
            await channel.call(KvGet("register", b""))

        client = ControlClient(server.connect, on_connected=register, on_lost=lost.append)
        await client.start()
        await client.call(KvGet("n", b"k"))
        server.drop()
        await asyncio.sleep(1)
        assert lost == ["the control store refuses us: declared dead"]
        await client.close()

    run_virtual(main())


def test_messages_from_the_store_reach_the_handler() -> None:
    async def main() -> None:
        server = Server()
        heard: list[Message] = []
        client = ControlClient(server.connect, on_message=lambda _, message: heard.append(message))
        await client.start()
        server.links[0].send(StopNode("x"))
        await asyncio.sleep(0.1)
        assert heard == [StopNode("x")]
        await client.close()

    run_virtual(main())


def test_closing_ends_the_calls_that_wait() -> None:
    async def main() -> None:
        server = Server()
        lost: list[str] = []
        client = ControlClient(server.connect, on_lost=lost.append)
        await client.start()
        server.swallows = True
        waiting = asyncio.ensure_future(client.call(KvGet("n", b"k"), timeout_s=None))
        await asyncio.sleep(0.1)
        await client.close()
        with pytest.raises(CallError):
            await waiting
        assert not lost
        await client.close()

    run_virtual(main())
