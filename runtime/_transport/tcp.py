"""Channels over TCP between nodes. Both sides prove the cluster's secret before a single frame is read."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import cast

from runtime._wire.handshake import GREETING_BYTES, PROOF_BYTES, Handshake, HandshakeError
from runtime._wire.messages.base import ErrorKind

from .channel import CallError, Handler, StreamChannel

log = logging.getLogger(__name__)
HANDSHAKE_TIMEOUT_S = 10.0


class _Handshaking(asyncio.Protocol):
    """Owns a fresh connection until both proofs are checked, then hands the transport to `channel`."""

    def __init__(
        self, secret: bytes, is_client: bool, channel: StreamChannel, done: Callable[[Exception | None], None]
    ) -> None:
        self._handshake = Handshake(secret, is_client)
        self._channel = channel
        self._done: Callable[[Exception | None], None] | None = done
        self._received = bytearray()
        self._greeted = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._timer = asyncio.get_running_loop().call_later(
            HANDSHAKE_TIMEOUT_S, self._finish, HandshakeError("the peer did not prove the secret in time")
        )
        self._transport.write(self._handshake.greeting)

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            if not self._greeted:
                if len(self._received) < GREETING_BYTES:
                    return
                proof = self._handshake.proof(bytes(self._received[:GREETING_BYTES]))
                del self._received[:GREETING_BYTES]
                self._greeted = True
                assert self._transport is not None
                self._transport.write(proof)
            if len(self._received) < PROOF_BYTES:
                return
            self._handshake.verify(bytes(self._received[:PROOF_BYTES]))
        except HandshakeError as error:
            self._finish(error)
            return
        rest = bytes(self._received[PROOF_BYTES:])
        transport, channel = self._transport, self._channel
        assert transport is not None
        transport.set_protocol(channel)
        channel.connection_made(transport)
        self._finish(None)
        if rest:
            channel.feed(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(exc or ConnectionError("the peer closed the connection before it proved the secret"))

    def _finish(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        done, self._done = self._done, None
        if error is not None and self._transport is not None:
            self._transport.abort()
        if done is not None:
            done(error)


class TcpListener:
    """A listening TCP socket; `stop` closes it, accepted channels live on."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._server.close()


async def serve_tcp(
    host: str, port: int, secret: bytes, on_channel: Callable[[StreamChannel], None], name: str
) -> TcpListener:
    """Listens on `host:port` (0: any free port) and hands every proven channel to `on_channel`.

    Raises:
        OSError: the address cannot be bound.
    """

    def accept() -> asyncio.Protocol:
        channel = StreamChannel(None, name)

        def done(error: Exception | None) -> None:
            if error is None:
                on_channel(channel)
            else:
                log.warning("%s refused a connection: %s", name, error)

        return _Handshaking(secret, False, channel, done)

    server = await asyncio.get_running_loop().create_server(accept, host, port, backlog=1024)
    return TcpListener(server)


async def connect_tcp(
    host: str,
    port: int,
    secret: bytes,
    handler: Handler | None = None,
    name: str = "",
    timeout_s: float = 5.0,
) -> StreamChannel:
    """Connects to a listener of `serve_tcp` and proves the secret.

    Raises:
        CallError: nobody listens there (UNAVAILABLE), no answer in time (TIMEOUT), or another secret
            (INVALID).
    """
    loop = asyncio.get_running_loop()
    proven: asyncio.Future[Exception | None] = loop.create_future()
    channel = StreamChannel(handler, name)

    def done(error: Exception | None) -> None:
        if not proven.done():
            proven.set_result(error)

    transport: asyncio.BaseTransport | None = None
    try:
        async with asyncio.timeout(timeout_s):
            transport, _ = await loop.create_connection(
                lambda: _Handshaking(secret, True, channel, done), host, port
            )
            error = await proven
    except TimeoutError:
        if transport is not None:
            transport.close()
        raise CallError(ErrorKind.TIMEOUT, f"{host}:{port} did not answer within {timeout_s} s") from None
    except OSError as failure:
        raise CallError(ErrorKind.UNAVAILABLE, f"cannot connect to {host}:{port}: {failure}") from failure
    if isinstance(error, HandshakeError):
        raise CallError(ErrorKind.INVALID, f"{host}:{port}: {error}")
    if error is not None:
        raise CallError(ErrorKind.UNAVAILABLE, f"{host}:{port}: {error}")
    return channel
