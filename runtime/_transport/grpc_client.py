"""The connecting side of the control plane between machines."""

from __future__ import annotations

import asyncio
import logging

import grpc
import grpc.aio

from runtime._transport.channel import CallError, Handler
from runtime._transport.grpc_channel import (
    CLIENT_PING_S,
    LINGER_S,
    METHOD,
    SERVICE,
    GrpcChannel,
    bearer,
    stream_options,
)
from runtime._wire.messages.base import ErrorKind

log = logging.getLogger(__name__)

AUTH = "auth"
"""`CallError.kind` when the peer refuses our secret."""


class GrpcClientChannel(GrpcChannel):
    """A connected stream that owns its gRPC channel and the task that pumps it."""

    waits_for_peer = True
    _pump: asyncio.Task[None]

    def start(self, connection: grpc.aio.Channel, call: grpc.aio.StreamStreamCall[bytes, bytes]) -> None:
        """Begins to move messages."""
        loop = asyncio.get_running_loop()
        self._pump = loop.create_task(self._move(connection, call), name=f"grpc {self.name}")

    async def _move(
        self, connection: grpc.aio.Channel, call: grpc.aio.StreamStreamCall[bytes, bytes]
    ) -> None:
        try:
            await self.run()
        finally:
            call.cancel()
            await connection.close()

    async def drained(self) -> None:
        """After `close`: returns when what was sent has left and the connection is gone (a second or so at
        most).
        """
        await asyncio.wait((self._pump,), timeout=2 * LINGER_S)


async def connect_grpc(
    address: str, secret: bytes, handler: Handler | None, name: str, timeout_s: float = 10.0
) -> GrpcClientChannel:
    """Connects to `address` (host:port) and proves the secret.

    Raises:
        CallError: `AUTH` when the secret is refused, UNAVAILABLE when nobody listens there, TIMEOUT when
            nobody answers.
    """
    connection = grpc.aio.insecure_channel(
        address,
        options=(
            *stream_options(CLIENT_PING_S),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
        ),
    )
    try:
        open_stream = connection.stream_stream(f"/{SERVICE}/{METHOD}")
        call = open_stream(metadata=(("authorization", bearer(secret)),))
        try:
            async with asyncio.timeout(timeout_s):
                welcome = dict(await call.initial_metadata())
                if "clusterctl-stream" not in welcome:
                    raise _refusal(await call.code(), address, name)
        except TimeoutError:
            raise CallError(
                ErrorKind.TIMEOUT, f"{name} at {address} did not answer within {timeout_s:g} s"
            ) from None
        except grpc.RpcError as error:
            raise _refusal(error.code(), address, name) from error
    except BaseException:
        await connection.close()
        raise
    channel = GrpcClientChannel(handler, name, call.read, call.write, call.done_writing)
    channel.start(connection, call)
    return channel


def _refusal(code: grpc.StatusCode, address: str, name: str) -> CallError:
    if code is grpc.StatusCode.UNAUTHENTICATED:
        advice = "use the secret file of the cluster that runs there"
        return CallError(AUTH, f"{name} at {address} refuses our secret: {advice}")
    if code is grpc.StatusCode.UNAVAILABLE:
        return CallError(ErrorKind.UNAVAILABLE, f"{name} at {address} cannot be reached; is it running?")
    return CallError(ErrorKind.UNAVAILABLE, f"{name} at {address} does not speak this protocol ({code.name})")
