"""Channels over real Unix sockets."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from runtime._transport.channel import CallError, Channel, StreamChannel
from runtime._transport.unix import connect_unix, peer_credentials, serve_unix
from runtime._wire.messages.base import ErrorKind, Message, Ok
from runtime._wire.messages.control import KvGet
from runtime._wire.messages.node import AgentHello


def answer(channel: Channel, message: Message) -> Message:
    if isinstance(message, AgentHello):
        return Ok()
    raise CallError(ErrorKind.NOT_FOUND, "no such thing")


def accept(channels: list[StreamChannel]) -> object:
    def on_channel(channel: StreamChannel) -> None:
        channel.handler = answer
        channels.append(channel)

    return on_channel


def test_a_call_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        channels: list[StreamChannel] = []
        listener = await serve_unix(str(tmp_path / "s"), accept(channels), "test")  # type: ignore[arg-type]
        client = await connect_unix(str(tmp_path / "s"))
        assert isinstance(await client.call(AgentHello(b"n")), Ok)
        with pytest.raises(CallError, match="no such thing") as caught:
            await client.call(KvGet("n", b"k"))
        assert caught.value.kind == ErrorKind.NOT_FOUND
        client.close()
        listener.stop()

    asyncio.run(scenario())


def test_the_peer_is_known(tmp_path: Path) -> None:
    async def scenario() -> None:
        channels: list[StreamChannel] = []
        listener = await serve_unix(str(tmp_path / "s"), accept(channels), "test")  # type: ignore[arg-type]
        client = await connect_unix(str(tmp_path / "s"))
        await client.call(AgentHello(b"n"))
        assert client._transport is not None
        connection = client._transport.get_extra_info("socket")
        assert peer_credentials(connection)[:2] == (os.getpid(), os.getuid())
        client.close()
        listener.stop()

    asyncio.run(scenario())


def test_the_end_of_one_side_is_the_end_of_the_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        channels: list[StreamChannel] = []
        listener = await serve_unix(str(tmp_path / "s"), accept(channels), "test")  # type: ignore[arg-type]
        client = await connect_unix(str(tmp_path / "s"))
        await client.call(AgentHello(b"n"))
        closed = asyncio.Event()
        client.on_close = lambda _: closed.set()
        channels[0].close()
        async with asyncio.timeout(60):
            await closed.wait()
        listener.stop()

    asyncio.run(scenario())


def test_the_socket_file_is_private_and_goes_with_the_listener(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "s"
        listener = await serve_unix(str(path), accept([]), "test")  # type: ignore[arg-type]
        assert path.stat().st_mode & 0o777 == 0o600
        listener.stop()
        assert not path.exists()

    asyncio.run(scenario())


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(OSError, match="shorter directory"):
            await serve_unix(str(tmp_path / ("x" * 120)), accept([]), "test")  # type: ignore[arg-type]

    asyncio.run(scenario())
