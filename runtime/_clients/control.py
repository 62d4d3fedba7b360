"""The client of the control store that node agents, the autoscaler, the API server and `clusterctl` share.

It keeps one connection, opens it again when it breaks, and repeats calls that the break left unanswered.
Only when the control store stays away for `reconnect_timeout_s` does it give up, once and for all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from runtime._transport.channel import CallError, Channel, Handler
from runtime._transport.tcp import connect_tcp, notice_vanished_machine
from runtime._wire.messages.base import ErrorKind, Message, Request

log = logging.getLogger(__name__)
R = TypeVar("R")

Connect = Callable[[Handler], Awaitable[Channel]]
"""Opens a connection whose incoming messages go to the given handler; raises `CallError` when it cannot."""

FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 1.0
MAX_KEPT = 10_000
"""One-way messages kept while there is no connection; older ones go first."""


def connecting(address: str, secret: bytes, timeout_s: float = 5.0) -> Connect:
    """What opens a connection to the control store that listens at `address` (host:port)."""
    host, _, port = address.rpartition(":")

    async def connect(handler: Handler) -> Channel:
        channel = await connect_tcp(
            host.strip("[]"), int(port), secret, handler, "the control store", timeout_s
        )
        notice_vanished_machine(channel)
        return channel

    return connect


class ControlClient:
    """A reconnecting connection to the control store. All methods belong to the loop's thread."""

    def __init__(
        self,
        connect: Connect,
        on_message: Handler | None = None,
        on_connected: Callable[[Channel], Awaitable[None]] | None = None,
        reconnect_timeout_s: float | None = 7.0,
        on_lost: Callable[[str], None] | None = None,
    ) -> None:
        """Prepares; `start` connects.

        Args:
            connect: opens one connection.
            on_message: gets what the control store says of itself (a channel's handler).
            on_connected: awaited on each new connection before any other call uses it: register here, with
                the
                channel's own `call`. A `CallError` other than UNAVAILABLE and TIMEOUT is final.
            reconnect_timeout_s: how long to retry; None: no limit.
            on_lost: called once when it gave up, with the reason.
        """
        self._connect = connect
        self._on_message = on_message
        self._on_connected = on_connected
        self._reconnect_timeout_s = reconnect_timeout_s
        self.on_lost = on_lost
        self._channel: Channel | None = None
        self._changed = asyncio.Event()
        self._unsent: deque[Message] = deque(maxlen=MAX_KEPT)
        self._keeper: asyncio.Task[None] | None = None
        self._gone = ""

    @classmethod
    def over_tcp(
        cls,
        address: str,
        secret: bytes,
        on_message: Handler | None = None,
        on_connected: Callable[[Channel], Awaitable[None]] | None = None,
        reconnect_timeout_s: float | None = 7.0,
        on_lost: Callable[[str], None] | None = None,
        connect_timeout_s: float = 5.0,
    ) -> ControlClient:
        """A client of the control store that listens at `address` (host:port)."""

        connect = connecting(address, secret, connect_timeout_s)
        return cls(connect, on_message, on_connected, reconnect_timeout_s, on_lost)

    @property
    def connected(self) -> bool:
        """Whether a registered connection is there now."""
        return self._channel is not None

    async def start(self, timeout_s: float = 10.0) -> None:
        """Connects for the first time, and keeps the connection from then on.

        Raises:
            CallError: it could not within `timeout_s`, or was refused.
        """
        channel = await self._open(timeout_s)
        self._keeper = asyncio.get_running_loop().create_task(self._keep(channel), name="control connection")

    async def close(self) -> None:
        """Ends the connection; calls that wait fail with UNAVAILABLE."""
        self._give_up("the connection to the control store was closed here")
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.leave()

    def send(self, message: Message, keep: bool = True) -> None:
        """Sends one way. Without a connection the message waits for the next one, or is dropped unless
        `keep`.
        """
        if self._channel is not None and not self._channel.closed:
            self._channel.send(message)
        elif keep and not self._gone:
            self._unsent.append(message)

    async def call(self, request: Request[R], timeout_s: float | None = 30.0, retry: bool = True) -> R:
        """Calls the control store and returns its answer.

        Args:
            request: must be safe to repeat, as every request of `messages.control` is.
            timeout_s: for everything, reconnecting included; None leaves it to `reconnect_timeout_s`.
            retry: repeat over a new connection when the old one broke before the answer.

        Raises:
            CallError: refused, TIMEOUT, or UNAVAILABLE when the connection is gone for good.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while True:
            channel = await self._connection(deadline, type(request).__name__)
            left = None if deadline is None else max(0.0, deadline - loop.time())
            try:
                return await channel.call(request, left)
            except CallError as error:
                if error.kind != ErrorKind.UNAVAILABLE or not channel.closed or not retry:
                    raise
                if self._channel is channel:
                    self._channel = None

    async def _connection(self, deadline: float | None, what: str) -> Channel:
        loop = asyncio.get_running_loop()
        while True:
            if self._gone:
                raise CallError(ErrorKind.UNAVAILABLE, self._gone)
            if self._channel is not None and not self._channel.closed:
                return self._channel
            self._changed.clear()
            try:
                async with asyncio.timeout(None if deadline is None else max(0.0, deadline - loop.time())):
                    await self._changed.wait()
            except TimeoutError:
                raise CallError(
                    ErrorKind.TIMEOUT, f"no connection to the control store in time for {what}"
                ) from None

    async def _open(self, timeout_s: float | None) -> Channel:
        """Connects and registers, trying again until `timeout_s` has passed."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        delay = FIRST_DELAY_S
        while True:
            try:
                return await self._open_once(deadline)
            except CallError as error:
                if error.kind not in (ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT):
                    raise
                if deadline is not None and loop.time() + delay >= deadline:
                    raise
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_DELAY_S)

    async def _open_once(self, deadline: float | None) -> Channel:
        left = None if deadline is None else max(0.01, deadline - asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(left):
                channel = await self._connect(self._incoming)
                try:
                    if self._on_connected is not None:
                        await self._on_connected(channel)
                except BaseException:
                    channel.close()
                    raise
        except TimeoutError:
            raise CallError(ErrorKind.TIMEOUT, "the control store did not answer in time") from None
        if channel.closed:
            raise CallError(ErrorKind.UNAVAILABLE, "the control store closed the connection")
        self._channel = channel
        while self._unsent:
            channel.send(self._unsent.popleft())
        self._changed.set()
        return channel

    def _incoming(self, channel: Channel, message: Message) -> Awaitable[Message | None] | Message | None:
        if self._on_message is None:
            return None
        return self._on_message(channel, message)

    async def _keep(self, channel: Channel) -> None:
        """Waits for the connection's end, opens the next one, and so on until it gives up."""
        while True:
            closed = asyncio.Event()
            channel.on_close = lambda _, closed=closed: closed.set()
            if not channel.closed:
                await closed.wait()  # a connection may live as long as the process
            self._channel = None
            log.warning("lost the connection to the control store; reconnecting")
            try:
                channel = await self._open(self._reconnect_timeout_s)
            except CallError as error:
                if error.kind in (ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT):
                    reason = f"the control store has been away for {self._reconnect_timeout_s:g} s: {error}"
                else:
                    reason = f"the control store refuses us: {error}"
                log.error("giving up: %s", reason)
                self._give_up(reason)
                if self.on_lost is not None:
                    self.on_lost(reason)
                return
            log.info("connected to the control store again")

    def _give_up(self, reason: str) -> None:
        self._gone = self._gone or reason
        self._changed.set()
