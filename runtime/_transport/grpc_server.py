"""The listening side of the control plane between machines: one authenticated stream per peer."""

from __future__ import annotations

import errno
import hmac
import ipaddress
import os
import socket
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from runtime._transport.channel import Channel
from runtime._transport.grpc_channel import (
    METHOD,
    SERVER_PING_S,
    SERVICE,
    GrpcChannel,
    bearer,
    stream_options,
)

STOP_GRACE_S = 0.2
WELCOME = (("clusterctl-stream", "1"),)


class GrpcServer:
    """A listener; `port` is the one it got."""

    def __init__(self, secret: bytes, on_channel: Callable[[Channel], None]) -> None:
        self.port = 0
        self._proof = bearer(secret).encode()
        self._on_channel = on_channel
        self._channels: set[GrpcChannel] = set()
        self._server = grpc.aio.server(options=(*stream_options(SERVER_PING_S), ("grpc.so_reuseport", 0)))
        handler = grpc.stream_stream_rpc_method_handler(self._serve, None, None)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
        )

    async def listen(self, host: str, port: int) -> None:
        """Binds and starts.

        Raises:
            OSError: the address cannot be bound; the message says what to do.
        """
        _check_free(host, port)
        text = f"[{host}]" if ":" in host else host
        try:
            self.port = self._server.add_insecure_port(f"{text}:{port}")
        except RuntimeError as error:
            raise _in_use(host, port) from error
        if not self.port:
            raise _in_use(host, port)
        await self._server.start()

    async def stop(self) -> None:
        """Closes every stream and the listener."""
        for channel in list(self._channels):
            channel.close()
        await self._server.stop(STOP_GRACE_S)

    async def _serve(self, _: Any, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        metadata = dict(context.invocation_metadata() or ())
        given = metadata.get("authorization", "")
        proof = given.encode() if isinstance(given, str) else bytes(given)
        if not hmac.compare_digest(proof, self._proof):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the secret is not that of this cluster")

        async def finish() -> None:
            """Returning from `_serve` ends our half of the stream."""

        channel = GrpcChannel(None, context.peer(), context.read, context.write, finish)
        self._channels.add(channel)
        try:
            self._on_channel(channel)  # first: who is welcome is known here
            await context.send_initial_metadata(WELCOME)
            await channel.run()
        finally:
            channel.close()
            self._channels.discard(channel)


async def serve_grpc(
    host: str, port: int, secret: bytes, on_channel: Callable[[Channel], None]
) -> GrpcServer:
    """Listens on `host:port` (0: any free one). `on_channel` gets each authenticated peer's channel and
    sets its `handler` before it returns.

    Raises:
        OSError: the address cannot be bound.
    """
    server = GrpcServer(secret, on_channel)
    await server.listen(host, port)
    return server


def _check_free(host: str, port: int) -> None:
    """Binds and lets go, for the sake of the error: gRPC does not say why it cannot bind."""
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        family = socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise _in_use(host, port) from error
            raise OSError(
                error.errno, f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}"
            ) from error


def _in_use(host: str, port: int) -> OSError:
    return OSError(
        errno.EADDRINUSE,
        f"port {port} of {host} is in use by another program; choose another port, or 0 for any free one",
    )
