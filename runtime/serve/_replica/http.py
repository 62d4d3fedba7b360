"""HTTP requests and WebSockets: the user's code sees them as ASGI does, and nothing is parsed again."""

from __future__ import annotations

import asyncio
import functools
import io
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any

from runtime.serve._http_failures import told_of
from runtime.serve._replica import calls
from runtime.serve._replica.asgi_app import VERSIONS
from runtime.serve._replica.responses import TEXT, chunk_of, response_of, sendable
from runtime.serve._replica.running import Peer, RequestHost, Running, text_of
from runtime.serve._wire.messages import ACKNOWLEDGE_BYTES, Chunk, End, Event, Http, Start, size_of

PIECE_BYTES = 256 << 10
"""A larger body travels in pieces of this size."""
GRACE_S = 0.1
"""Code that waits for `http.disconnect` has this long to end before it is cancelled."""
DISCONNECT = {"type": "http.disconnect"}


class ClientGone(OSError):
    """The client does not wait for the response any more; `send` raises it, as ASGI says."""


def is_departure(error: BaseException | None) -> bool:
    """Whether an error says that the client is gone: ours, and those of Starlette that follow from it."""
    names = ("ClientGone", "ClientDisconnect", "WebSocketDisconnect")
    return error is not None and (type(error).__name__ in names or is_departure(error.__cause__))


class _FromClient(Running):
    """What an HTTP request and a WebSocket have in common: a client that sends, and may leave."""

    __slots__ = ("_disconnected", "_request", "_unacknowledged", "_waiting")

    is_http = True

    def __init__(self, service: RequestHost, peer: Peer, request: Http) -> None:
        super().__init__(service, peer, request.number, request.meta)
        self._request = request
        self._unacknowledged = 0
        self._waiting: asyncio.Future[None] | None = None
        self._disconnected = False

    @property
    def target(self) -> str:
        """The path."""
        return self._request.path

    @property
    def client(self) -> str:
        """host:port of the client."""
        return text_of(self._request.client)

    def is_departure(self, error: Exception) -> bool:
        """Whether code ended because the client is gone."""
        return self._disconnected and is_departure(error)

    def _leave(self) -> None:
        """The client is gone: code that waits for that hears of it first."""
        is_watched = self._waiting is not None
        self._wake()
        if is_watched:
            self.service.loop.call_later(GRACE_S, super().cancel)
        else:
            super().cancel()

    async def _wait(self) -> None:
        """Until `_wake`."""
        self._waiting = self.service.loop.create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _take(self, size: int, more: bool = True) -> None:
        """The code has got so many bytes."""
        self._unacknowledged += size
        if self._unacknowledged >= ACKNOWLEDGE_BYTES and more:
            self.consumed(self._unacknowledged)
            self._unacknowledged = 0


class RunningHttp(_FromClient):
    """An HTTP request."""

    __slots__ = ("_chunks", "_first", "_response_status", "_started")

    def __init__(self, service: RequestHost, peer: Peer, request: Http) -> None:
        super().__init__(service, peer, request)
        self._first = True
        self._chunks: deque[Chunk] = deque()
        self._started = False
        self._response_status = 0

    @property
    def method(self) -> str:  # type: ignore[override]
        """For the access log."""
        return self._request.method

    def scope(self) -> dict[str, Any]:
        """As ASGI describes a request."""
        request = self._request
        app = self.service.user.app
        return {
            "type": "http",
            "asgi": VERSIONS,
            "http_version": request.http_version,
            "method": request.method,
            "scheme": request.scheme,
            "path": request.path,
            "raw_path": request.raw_path,
            "query_string": request.query,
            "root_path": request.root_path,
            "headers": request.headers,
            "client": request.client,
            "server": request.server,
            "state": app.state.copy() if app is not None else {},
        }

    async def _answer(self) -> None:
        user = self.service.user
        if user.app is not None:
            await user.app.app(self.scope(), self.receive, self.asgi_send)
            if not self.over:
                if self._disconnected:  # it has noticed, and returned
                    raise ClientGone("The client is disconnected.")
                raise RuntimeError("The ASGI application returned without a complete response.")
            return
        try:
            await self._call_plain()
        except Exception as error:
            if self._started or self.is_departure(error):
                raise
            self._send_error(error)

    async def _call_plain(self) -> None:
        user = self.service.user
        method = user.method("__call__")
        args = (request_of(self.scope(), self.receive, self.asgi_send),) if method.takes_request else ()
        if method.is_generator or method.is_async_generator:
            items = await calls.items_of(self.service.threads, user, method, args, {}, chunk_of)
            assert items is not None
        else:
            result = await user.call(method, args, {})
            responses = sys.modules.get("starlette.responses")
            if responses is not None and isinstance(result, responses.Response):
                await result(self.scope(), self.receive, self.asgi_send)
                return
            generated = calls.generated(self.service.threads, result, chunk_of)
            if generated is None:
                headers, body = response_of(result)
                self._respond(200, headers)
                await self._send_body(body, False)
                return
            items = generated
        self._respond(200, TEXT)
        try:
            async for item in items:
                await self._send_body(item, True)
        finally:
            await items.aclose()
        await self._send_body(b"", False)

    def _send_error(self, error: Exception) -> None:
        self.error = error
        self.service.failure(self, error)
        status, text, headers = told_of(error)
        body = text.encode()
        self._respond(status, [*TEXT, (b"content-length", str(len(body)).encode()), *headers])
        self._last(body)

    # ------------------------------------------------------------ from the caller

    def chunk(self, message: Chunk) -> None:
        """A part of the request's body."""
        self._chunks.append(message)
        self._wake()

    def cancel(self) -> None:
        """The client is gone."""
        self._disconnected = True
        self._leave()

    # ------------------------------------------------------------ ASGI

    async def receive(self) -> dict[str, Any]:
        """The next part of the body, then `http.disconnect` when the client is gone or the response is complete."""
        if self._first:
            self._first = False
            body, request = self._request.body, self._request
            return {"type": "http.request", "body": body, "more_body": request.more}
        while not self._chunks:
            if self._disconnected or self.over:
                return DISCONNECT
            await self._wait()
        chunk = self._chunks.popleft()
        self._take(len(chunk.body), chunk.more)
        return {"type": "http.request", "body": chunk.body, "more_body": chunk.more}

    async def asgi_send(self, message: dict[str, Any]) -> None:
        """Takes `http.response.start` and `http.response.body`.

        Raises:
            ClientGone: nobody waits for the response.
            RuntimeError: the message may not come now.
        """
        if self._disconnected:
            raise ClientGone("The client is disconnected.")
        kind = message["type"]
        if kind == "http.response.body":
            if not self._started or self.over:
                raise RuntimeError("`http.response.body` before the start or after the end of the response.")
            body = message.get("body", b"")
            if not isinstance(body, bytes | bytearray | memoryview):
                raise TypeError(f"The body of a response must be bytes, not {type(body).__name__}.")
            await self._send_body(body, message.get("more_body", False))
        elif kind == "http.response.start":
            if self._started or self.over:
                raise RuntimeError("`http.response.start` was sent already.")
            self._respond(message["status"], message.get("headers", ()))
        else:
            raise RuntimeError(f"`{kind}` is no message of an HTTP response.")

    def _respond(self, status: int, headers: Iterable[Any]) -> None:
        start = Start(self.number, *sendable(status, headers))
        self._started = True
        self._response_status = status
        self.send(start)

    async def _send_body(self, body: Any, more: bool) -> None:
        if len(body) > PIECE_BYTES:
            view: Any = memoryview(body).cast("B")
            start = 0
            while len(view) - start > PIECE_BYTES:
                await self.send_counted(
                    Chunk(self.number, view[start : start + PIECE_BYTES], True), PIECE_BYTES
                )
                start += PIECE_BYTES
            body = view[start:]
        if more:
            if len(body):
                await self.send_counted(Chunk(self.number, body, True), len(body))
            return
        await self.wait_for_room()
        self._last(body)

    def _last(self, body: Any) -> None:
        keep = self.finish(str(self._response_status))
        self.send(Chunk(self.number, body, False, keep))
        self._wake()  # whoever waits for the client to go


class RunningWebSocket(_FromClient):
    """A WebSocket: events both ways until the application returns."""

    __slots__ = ("_events",)

    method = "WS"

    def __init__(self, service: RequestHost, peer: Peer, request: Http) -> None:
        super().__init__(service, peer, request)
        self._events: deque[dict[str, Any]] = deque([{"type": "websocket.connect"}])

    async def _answer(self) -> None:
        request = self._request
        app = self.service.user.app
        if app is None:
            raise TypeError("WebSockets need an ASGI application: see `serve.ingress`.")
        scope: dict[str, Any] = {
            "type": "websocket",
            "asgi": VERSIONS,
            "http_version": request.http_version,
            "scheme": request.scheme,
            "path": request.path,
            "raw_path": request.raw_path,
            "query_string": request.query,
            "root_path": request.root_path,
            "headers": request.headers,
            "client": request.client,
            "server": request.server,
            "subprotocols": request.subprotocols,
            "state": app.state.copy(),
            "extensions": {"websocket.http.response": {}},
        }
        await app.app(scope, self._receive, self._asgi_send)
        self.send(End(self.number, self.finish("101")))

    def event(self, message: Event) -> None:
        """An event of the client."""
        if message.event["type"] == "websocket.connect":
            return  # the request was that
        self._disconnected = self._disconnected or message.event["type"] == "websocket.disconnect"
        self._events.append(message.event)
        self._wake()

    def cancel(self) -> None:
        """The client is gone."""
        if not self._disconnected:
            self._disconnected = True
            self._events.append({"type": "websocket.disconnect", "code": 1006})
        self._leave()

    async def _receive(self) -> dict[str, Any]:
        while not self._events:
            await self._wait()
        event = self._events.popleft()
        self._take(size_of(event))
        return event

    async def _asgi_send(self, message: dict[str, Any]) -> None:
        await self.wait_for_room()
        if self._disconnected or self.over:  # another task may send after the endpoint has returned
            raise ClientGone("The WebSocket is closed.")
        if not message["type"].startswith("websocket."):
            raise RuntimeError(f"`{message['type']}` is no message of a WebSocket.")
        if "headers" in message:
            message = {**message, "headers": list(message["headers"])}
        await self.send_counted(Event(self.number, message), size_of(message))


@functools.cache
def _request_class() -> Any:
    from starlette.requests import ClientDisconnect, Request

    class ServeRequest(Request):
        """A request whose body is never held twice: its parts are written into one buffer, which becomes the body."""

        _gathered: bytes | None = None
        _is_read = False

        async def body(self) -> bytes:
            if self._gathered is None:
                if self._is_read:  # else it would wait for the client to leave
                    raise RuntimeError("Stream consumed")
                first = await self.receive()
                parts = io.BytesIO()
                while first["type"] == "http.request":
                    if not first["more_body"] and not parts.tell():
                        self._gathered = first["body"]
                        return self._gathered
                    parts.write(first["body"])
                    if not first["more_body"]:
                        self._gathered = parts.getvalue()
                        return self._gathered
                    first = await self.receive()
                raise ClientDisconnect()
            return self._gathered

        async def stream(self) -> Any:
            if self._gathered is None:
                async for part in super().stream():
                    yield part
                self._is_read = True
            else:
                yield self._gathered
                yield b""

    return ServeRequest


def request_of(scope: Any, receive: Any, send: Any) -> Any:
    """A Starlette request. Starlette is imported here only: most deployments take no HTTP requests."""
    return _request_class()(scope, receive, send)
