"""A channel over one bidirectional gRPC stream. Imported only by processes that speak gRPC: it costs time
to load.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from runtime._transport.channel import Channel, Handler

log = logging.getLogger(__name__)

SERVICE = "clusterctl.Control"
METHOD = "Stream"
MAX_MESSAGE_BYTES = 512 * 2**20
MAX_UNSENT_BYTES = 2 * MAX_MESSAGE_BYTES
"""A peer that reads so slowly that more than this piles up is dropped."""

CORRELATION_BYTES = 4
GOOD_BYE = b""
"""The last frame of a side that closes: tells a peer that left from a connection that broke."""

LINGER_S = 3.0
"""How long a side that closes tries to get its last messages across."""

CLIENT_PING_S = 2
SERVER_PING_S = 3
"""After so long without a word of the other side it is pinged. A peer that does not answer is dead 2 s later, even when
its machine vanished without a word. The server waits longer: then it has heard the client's ping, and one is enough."""


def stream_options(ping_s: int) -> tuple[tuple[str, int], ...]:
    """The settings of a connection."""
    return (
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES + 2**20),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES + 2**20),
        # A window that does for all networks: to measure what each needs costs a ping with every message.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 4 * 2**20),
        ("grpc.keepalive_time_ms", 1000 * ping_s),
        ("grpc.keepalive_timeout_ms", 2000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 1000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 0),
    )


def bearer(secret: bytes) -> str:
    """The value of the `authorization` metadata that proves `secret`."""
    return "Bearer " + secret.hex()


class GrpcChannel(Channel):
    """One side of a stream. `run` moves the messages and returns when the stream is over."""

    waits_for_peer = False  # whether ending `run` cuts off what the peer has not read yet

    def __init__(
        self,
        handler: Handler | None,
        name: str,
        read: Callable[[], Awaitable[Any]],
        write: Callable[[bytes], Awaitable[None]],
        finish: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(handler, name)
        self._read = read
        self._send_frame = write
        self._finish_writing = finish
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Reads and writes until either side closes; the channel is closed when it returns."""
        reader = asyncio.ensure_future(self._read_all())
        writer = asyncio.ensure_future(self._write_all())
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            self.close()
            last = (writer, reader) if self.waits_for_peer else (writer,)
            await asyncio.wait(last, timeout=LINGER_S)
        finally:
            self.close()
            for task in (reader, writer):
                task.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    def _write(self, payload: bytes, correlation: int) -> None:
        self._unsent.append(correlation.to_bytes(CORRELATION_BYTES, "little") + payload)
        self._unsent_bytes += len(payload)
        if self._unsent_bytes > MAX_UNSENT_BYTES:
            log.error("closing %s: it leaves %d bytes unread", self.name, self._unsent_bytes)
            self.close()
        self._wake.set()

    def _shut(self) -> None:
        self._wake.set()

    async def _read_all(self) -> None:
        try:
            while True:
                data = await self._read()
                if data is grpc.aio.EOF:  # also after a break
                    return
                if data == GOOD_BYE:
                    self.peer_left = True
                    return
                if self._closed:
                    continue  # reading on tells when the peer has taken our last words
                self._received(int.from_bytes(data[:CORRELATION_BYTES], "little"), data[CORRELATION_BYTES:])
        except (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            log.debug("reading from %s ended: %s", self.name, error)

    async def _write_all(self) -> None:
        try:
            while True:
                while self._unsent:
                    frame = self._unsent.popleft()
                    self._unsent_bytes -= len(frame) - CORRELATION_BYTES
                    await self._send_frame(frame)
                if self._closed:
                    await self._send_frame(GOOD_BYE)
                    await self._finish_writing()
                    return
                self._wake.clear()
                await self._wake.wait()  # ends with the next message or with the channel
        except (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            log.debug("writing to %s ended: %s", self.name, error)
