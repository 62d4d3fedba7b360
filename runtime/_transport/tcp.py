"""Channels over TCP between nodes. Both sides prove the cluster's secret before a single frame is read."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import cast

from runtime._wire.handshake import GREETING_BYTES, PROOF_BYTES, Handshake, HandshakeError
from runtime._wire.messages.base import ErrorKind

from .channel import CallError, Handler, StreamChannel

log = logging.getLogger(__name__)
HANDSHAKE_TIMEOUT_S = 10.0
SILENT_S = 4
UNACKNOWLEDGED_S = 10


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
        kind = ConnectionError if self._greeted or self._received else _SaidNothing
        words = str(exc) if exc else "the peer closed the connection before it proved the secret"
        self._finish(kind(words))

    def _finish(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        done, self._done = self._done, None
        if error is not None and self._transport is not None:
            self._transport.abort()
        if done is not None:
            done(error)


class _SaidNothing(ConnectionError):
    """The peer went without a word."""


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
    """Listens on `host:port` (0: any free port) and hands every proven channel to `on_channel`, before its first
    message is read.

    Raises:
        OSError: the address cannot be bound; the message says what to do.
    """

    def accept() -> asyncio.Protocol:
        channel = StreamChannel(None, name)

        def done(error: Exception | None) -> None:
            if error is None:
                on_channel(channel)
            elif not isinstance(error, _SaidNothing):  # who just looks if anybody listens here is welcome
                log.warning("%s refused a connection: %s", name, error)

        return _Handshaking(secret, False, channel, done)

    try:
        server = await asyncio.get_running_loop().create_server(accept, host, port, backlog=1024)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    return TcpListener(server)


def _cannot_listen(host: str, port: int, error: OSError) -> OSError:
    if error.errno == errno.EADDRINUSE:
        text = (
            f"port {port} of {host} is in use by another program; choose another port, or 0 for any free one"
        )
    else:
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        text = f"cannot listen on {host}:{port}: {why}"
    return OSError(error.errno, text)


async def refuses(address: str, timeout_s: float = 2.0) -> bool:
    """Whether the machine at "host:port" answers that nothing listens there. No answer proves nothing.

    Args:
        address: with a host that needs no look-up.
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, ValueError):  # TimeoutError is an OSError
        return False
    writer.transport.abort()
    return False


def notice_vanished_machine(channel: StreamChannel) -> None:
    """Has the kernel end the connection when the other machine does not answer any more: within `SILENT_S` while
    nothing is under way, within `UNACKNOWLEDGED_S` otherwise. No thread of either process wakes for it.
    """
    sock = channel.sock
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_S // 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENT_S // 2)
    # Also ends a connection whose peer reads nothing for that time, such as a stopped process.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNACKNOWLEDGED_S)


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
        CallError: nobody listens there (UNAVAILABLE), no answer in time (TIMEOUT), or another secret or protocol
            (INVALID).
    """
    where = f"{name} at {host}:{port}" if name else f"{host}:{port}"
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
        raise CallError(ErrorKind.TIMEOUT, f"{where} did not answer within {timeout_s:g} s") from None
    except OSError as failure:
        raise CallError(
            ErrorKind.UNAVAILABLE, f"{where} cannot be reached ({failure.strerror}); is it running?"
        ) from failure
    if isinstance(error, HandshakeError):
        raise CallError(ErrorKind.INVALID, f"{where}: {error}")
    if error is not None:
        raise CallError(ErrorKind.UNAVAILABLE, f"{where}: {error}")
    return channel
