"""One HTTP connection: uvicorn's protocol for httptools, with limits; it tells the request when its client leaves."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MAX_HEAD_BYTES = 64 << 10
"""Request line and headers together."""
HEAD_TIMEOUT_S = 60.0
"""How long a client may take for the head of a request, and for its first byte."""
LINGER_S = 1.0
"""How long a client that was refused may take to read why."""

_TOO_LARGE = "The request line and the headers are larger than 64 KiB."
_INVALID = "Invalid HTTP request received."
_LATE = "The request did not arrive in time."
_UPGRADE = "This upgrade is not supported."


class HttpConnection(HttpToolsProtocol):
    """Finds itself in the `state` of a scope, as "connection".

    A client that closes its sending side counts as gone, as with uvicorn: most clients that leave do just that.

    Attributes:
        gone: is called when the client leaves before the response of the running request is complete.
        waits_since: when it began to wait for a request, on the loop's clock; None while one runs.
        has_begun: whether a part of the awaited request has arrived; of the first one it is due at once.
    """

    def __init__(
        self,
        config: Any,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.app_state = {"connection": self}
        self.gone: Callable[[], None] | None = None
        self.waits_since: float | None = self.loop.time()
        self.has_begun = True
        self._earlier: deque[Any] = deque()  # requests that have others behind them
        self._in_head = True
        self._head_bytes = 0
        self._refusal = 400
        self._linger: asyncio.TimerHandle | None = None
        self._ignores_input = False

    @property
    def has_input(self) -> bool:
        """Whether a part of the body of the last request has arrived, or it is complete."""
        return bool(self.cycle.body) or not self.cycle.more_body

    def is_idle(self, since: float, not_before: float) -> bool:
        """Whether no request has come since then, `not_before` passed as well."""
        return self.waits_since is not None and max(self.waits_since, not_before) <= since

    def give_up(self) -> None:
        """Lets no request write any more. uvicorn tells only the last one of a connection that it is lost, and a turn
        of the loop after uvloop has closed it."""
        for cycle in (*self._earlier, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def expire(self, now: float) -> None:
        """Ends the connection if the head of a request does not arrive within the limit."""
        if self.waits_since is not None and self.has_begun and now - self.waits_since > HEAD_TIMEOUT_S:
            self._refuse(408, _LATE)

    # ------------------------------------------------------------ for the event loop

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self.timeout_keep_alive_task, self._linger):  # uvicorn keeps its own after an error
            if timer is not None:
                timer.cancel()
        self._tell_gone()
        self._earlier.clear()
        self.app_state = {}

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            return
        self.has_begun = True
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES and not self._ignores_input:
            self._refuse(431, _TOO_LARGE)

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        self.app_state = {}
        self.parser = None  # type: ignore[assignment]  # as uvicorn does when a connection is lost

    # ------------------------------------------------------------ for the parser

    def on_headers_complete(self) -> None:
        if self._head_bytes > MAX_HEAD_BYTES:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > MAX_HEAD_BYTES:
                self._refusal = 431
                raise ValueError(_TOO_LARGE)
        before = self.cycle
        if self.parser.should_upgrade():
            if self._should_upgrade():
                if before is not None and not before.response_complete:
                    raise ValueError(_UPGRADE)  # its response would be written among the frames
            elif self._has_body():
                # The parser takes what follows for the other protocol: the body would be lost.
                raise ValueError(_UPGRADE)
        super().on_headers_complete()
        if before is not None and before is not self.cycle and not before.response_complete:
            self._earlier.append(before)
        self.waits_since = None
        self._in_head = False
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True

    def on_response_complete(self) -> None:
        if self._earlier and self._earlier[0].response_complete:
            self._earlier.popleft()
        super().on_response_complete()
        if not self.pipeline:
            self.waits_since = self.loop.time()
            self.has_begun = False

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal, _TOO_LARGE if self._refusal == 431 else _INVALID)

    def _unsupported_upgrade_warning(self) -> None:
        # The parser cannot go on: this is the last request of the connection.
        self._ignores_input = True
        self.cycle.keep_alive = False

    # ------------------------------------------------------------ helpers

    def _has_body(self) -> bool:
        return any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")
            for name, value in self.headers
        )

    def _tell_gone(self) -> None:
        self.give_up()
        gone, self.gone = self.gone, None
        if gone is not None:
            gone()

    def _refuse(self, status: int, message: str) -> None:
        """Answers a request that cannot be understood. Earlier ones on the connection get their responses first."""
        cycle = self.cycle
        self._ignores_input = True
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                cycle.keep_alive = False
                return
            if self._earlier:
                self.pipeline.popleft()
                self._earlier[-1].keep_alive = False
                return
            if cycle.response_started:
                self.transport.close()
                return
            self._tell_gone()
        body = message.encode()
        self.transport.write(
            b"".join(
                (
                    STATUS_LINE[status],
                    b"content-type: text/plain; charset=utf-8\r\n",
                    b"content-length: %d\r\n" % len(body),
                    b"connection: close\r\n\r\n",
                    body,
                )
            )
        )
        # Closed at once, with data unread, the client's system would throw the answer away.
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
            self._linger = self.loop.call_later(LINGER_S, self.transport.close)
        else:
            self.transport.close()
