"""The ASGI application of the ingress: finds the route of a request and relays it to a replica and back."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, MutableMapping
from email.utils import formatdate
from typing import Any, TypeAlias, cast

from runtime.serve._http_failures import SERVER_ERROR
from runtime.serve._request_id import new_request_id
from runtime.serve._wire.messages import Chunk, End, Event, Failure, Http, Meta, Start

from . import answers
from .answers import Answer, Headers
from .measures import Measures
from .options import limit_s
from .routes import NO_ROUTES, RouteTable
from .upstream import Exchange, Queue, QueueOf

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

logger = logging.getLogger(__name__)

JOINED_BYTES = 64 << 10
"""Parts of a response are joined to at most so much: more is not worth the copy."""
REQUEST_ID = b"x-request-id"
# A proxy may have changed the underscores.
_NOTED = {
    REQUEST_ID: "request_id",
    b"serve_multiplexed_model_id": "model_id",
    b"serve-multiplexed-model-id": "model_id",
    b"x-request-timeout-seconds": "timeout",
    b"x-request-disconnect-disabled": "stays",
    b"traceparent": "traceparent",
    b"tracestate": "tracestate",
}
_NO_TRACE: dict[str, str] = {}
CLIENT_GONE = "499"
"""Status in metrics of requests whose client left before the answer."""


class HttpIngress:
    """ASGI 3, for "http" and "websocket". Belongs to one event loop.

    Attributes:
        ongoing: the requests that are being served, health checks apart.
        draining: `/-/healthz` answers 503, and connections close after their response.
    """

    def __init__(
        self,
        table: RouteTable,
        queue_of: QueueOf,
        request_timeout_s: float | None = None,
        measures: Measures | None = None,
    ) -> None:
        self._measures = measures
        self.ongoing = 0
        self.draining = False
        self._table = table
        self._queue_of = queue_of
        self._timeout_s = limit_s(request_timeout_s)
        self._second = 0
        self._date = (b"date", b"")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        root: str = scope["root_path"]
        if root:
            path = path[len(root) :]  # uvicorn has put it there
        is_http = scope["type"] == "http"
        if is_http and path.startswith("/-/") and (answer := self._own(path)) is not None:
            await _send(send, answer, [self.date()])
            return
        route = self._table.match(path)
        if route is None:
            answer = answers.not_found(scope["path"])
            if self._measures is not None:
                self._measures.ended(("", scope.get("method", "WEBSOCKET"), "", "404"), 0.0, self.ongoing)
            if is_http:
                await _send(send, answer, [self.date()])
            else:
                await _deny(send, answer)
            return
        found: dict[str, str] = {}
        headers: Headers = scope["headers"]
        for name, value in headers:
            if name in _NOTED:
                found[_NOTED[name]] = value.decode("latin-1")
        request_id = found.get("request_id", "")
        if not request_id or not request_id.isprintable():
            request_id = new_request_id()
            headers = [*headers, (REQUEST_ID, request_id.encode())]
        timeout_s = _timeout_s(found["timeout"], self._timeout_s) if "timeout" in found else self._timeout_s
        trace = _NO_TRACE
        if "traceparent" in found:
            trace = {key: found[key] for key in ("traceparent", "tracestate") if key in found}
        meta = Meta(request_id, route.app, route.prefix, found.get("model_id", ""), timeout_s or 0.0, trace)
        if route.prefix != "/":
            root += route.prefix.rstrip("/")
        queue = self._queue_of(route.app, route.deployment)
        request = (_Request if is_http else _Socket)(
            self, queue, scope, headers, root, meta, receive, send, found.get("stays") != "?1"
        )
        self.ongoing += 1
        began = time.monotonic()
        try:
            await request.run()
        finally:
            self.ongoing -= 1
            if self._measures is not None:
                key = (route.prefix, scope["method"] if is_http else "WEBSOCKET", route.app, request.status)
                self._measures.ended(key, time.monotonic() - began, self.ongoing)

    def date(self) -> tuple[bytes, bytes]:
        """The header of that name."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._date = (b"date", formatdate(second, usegmt=True).encode())
        return self._date

    def _own(self, path: str) -> Answer | None:
        if path not in ("/-/healthz", "/-/routes"):
            return None
        if self.draining:
            return answers.text(503, answers.DRAINING)
        if not self._table.was_filled:
            return answers.text(503, NO_ROUTES)
        if path == "/-/routes":
            return answers.json(self._table.shown())
        return answers.text(200, answers.HEALTHY)


class _Relay:
    """What HTTP requests and WebSockets have in common."""

    __slots__ = (
        "_expired",
        "_headers",
        "_ingress",
        "_left",
        "_meta",
        "_notices_leaving",
        "_queue",
        "_reader",
        "_receive",
        "_root",
        "_scope",
        "_send",
        "_started",
        "_task",
        "status",
    )

    def __init__(
        self,
        ingress: HttpIngress,
        queue: Queue,
        scope: Scope,
        headers: Headers,
        root: str,
        meta: Meta,
        receive: Receive,
        send: Send,
        notices_leaving: bool,
    ) -> None:
        self._ingress = ingress
        self._queue = queue
        self._scope = scope
        self._headers = headers
        self._root = root
        self._meta = meta
        self._receive = receive
        self._send = send
        self._notices_leaving = notices_leaving
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._reader: asyncio.Task[None] | None = None
        self._left = False
        self._expired = False
        self._started = False
        self.status = CLIENT_GONE
        """Of the answer: that of HTTP, or the code that closed a WebSocket."""

    def message(self, body: bytes = b"", more: bool = False) -> Http:
        """The first message to the replica."""
        scope = self._scope
        return Http(
            0,
            self._meta,
            scope["type"],
            scope.get("method", "GET"),
            scope["scheme"],
            scope["http_version"],
            scope["path"],
            scope["raw_path"],
            scope["query_string"],
            self._root,
            self._headers,
            scope["client"],
            scope["server"],
            body,
            more,
            scope.get("subprotocols", []),
        )

    def leave(self) -> None:
        """The client has gone."""
        self._left = True
        if self._task is not None:
            self._task.cancel()

    def expire(self) -> None:
        """The time of the request is over."""
        self._expired = True
        if self._task is not None:
            self._task.cancel()

    def ended_by_us(self) -> bool:
        """Whether a cancellation is due to `leave`, `expire` or the end of a drain; it is then consumed."""
        if not self._left and not self._expired and not self._ingress.draining:
            return False
        if self._task is not None:
            self._task.uncancel()
        return True

    def own_end(self) -> Answer:
        """What a client gets that has not left."""
        if self._expired:
            return answers.timed_out(self._meta.request_id, self._meta.deadline_s)
        return answers.text(503, answers.DRAINING)

    def stop_reading(self) -> None:
        """Ends the task that reads from the client."""
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def watch_time(self) -> asyncio.TimerHandle | None:
        """Starts the clock of the request."""
        if not self._meta.deadline_s:
            return None
        return asyncio.get_running_loop().call_later(self._meta.deadline_s, self.expire)


class _Request(_Relay):
    """An HTTP request."""

    __slots__ = ()

    async def run(self) -> None:
        connection = self._scope["state"]["connection"]
        body, more = b"", True
        if connection.has_input:  # else the application begins before its body does
            first = await self._receive()
            if first["type"] == "http.disconnect":
                return
            body, more = first["body"], first["more_body"]
        if self._notices_leaving:
            if connection.transport.is_closing():  # it has left before it could be noticed
                return
            connection.gone = self.leave
        timer = self.watch_time()
        exchange: Exchange | None = None
        try:
            exchange = await self._queue.begin(self.message(body, more))
            if more:
                self._reader = asyncio.create_task(self._upload(exchange))
            await self._answer(exchange)
        except asyncio.CancelledError:
            if exchange is not None:
                exchange.cancel()
            if not self.ended_by_us():
                raise
            if not self._left and not self._started:
                await self._send_answer(self.own_end())
        except Exception as error:
            if exchange is not None:
                exchange.cancel()
            if connection.transport.is_closing():
                return
            answer = answers.for_error(error)
            if answer.status == 500:
                logger.warning("Request %s failed.", self._meta.request_id, exc_info=error)
            if not self._started:
                await self._send_answer(answer)
        finally:
            if connection.transport.is_closing():
                connection.give_up()
            connection.gone = None
            if timer is not None:
                timer.cancel()
            self.stop_reading()

    async def _answer(self, exchange: Exchange) -> None:
        receive, send = exchange.receive, self._send
        while True:
            part = await receive()
            kind = type(part)
            if kind is Chunk:
                body, more = _with_arrived(cast(Chunk, part), exchange)
                await send({"type": "http.response.body", "body": body, "more_body": more})
                if not more:
                    return
            elif kind is Start:
                self._started = True
                self.status = str(part.status)  # type: ignore[attr-defined]
                await send(
                    {
                        "type": "http.response.start",
                        "status": part.status,  # type: ignore[attr-defined]
                        "headers": part.headers + self._own_headers(),  # type: ignore[attr-defined]
                    }
                )
            elif kind is Failure:
                if not self._started:
                    await self._send_answer(answers.text(500, SERVER_ERROR))
                self.status = "500"
                return  # uvicorn closes a connection whose response is not complete
            else:
                raise TypeError(
                    f"The replica {exchange.replica} answered an HTTP request with {kind.__name__}."
                )

    async def _upload(self, exchange: Exchange) -> None:
        more = True
        while more:
            part = await self._receive()
            if part["type"] == "http.disconnect":  # the connection tells `leave`, or the response is complete
                if not self._notices_leaving:
                    self.leave()  # even so: the rest of the body will never come
                return
            more = part["more_body"]
            await exchange.send(part["body"], more)

    async def _send_answer(self, answer: Answer) -> None:
        self._started = True
        self.status = str(answer.status)
        await _send(self._send, answer, self._own_headers())

    def _own_headers(self) -> Headers:
        headers = [(REQUEST_ID, self._meta.request_id.encode("latin-1")), self._ingress.date()]
        if self._ingress.draining:
            headers.append((b"connection", b"close"))
        return headers


class _Socket(_Relay):
    """A WebSocket. The time limit of requests holds until it is accepted."""

    __slots__ = ("_closed", "_exchange")

    async def run(self) -> None:
        first = await self._receive()
        if first["type"] != "websocket.connect":
            return
        self._exchange: Exchange | None = None
        self._closed = False
        timer = self.watch_time()
        self._reader = asyncio.create_task(self._forward())
        try:
            self._exchange = await self._queue.begin(self.message())
            await self._relay(self._exchange, timer)
        except asyncio.CancelledError:
            self._give_up()
            if not self.ended_by_us():
                raise
            if not self._left:
                await self._fail(self.own_end())
        except _ClientGoneError:
            self._give_up()
        except Exception as error:
            self._give_up()
            answer = answers.for_error(error)
            if answer.status == 500:
                logger.warning("WebSocket %s failed.", self._meta.request_id, exc_info=error)
            await self._fail(answer)
        finally:
            if timer is not None:
                timer.cancel()
            self.stop_reading()

    async def _relay(self, exchange: Exchange, timer: asyncio.TimerHandle | None) -> None:
        while True:
            part = await exchange.receive()
            if isinstance(part, Event):
                event = part.event
                if event["type"] == "websocket.accept":
                    if timer is not None:
                        timer.cancel()
                    self._started = True
                    own = (REQUEST_ID, self._meta.request_id.encode("latin-1"))
                    event = {**event, "headers": [*(event.get("headers") or ()), own]}
                elif event["type"] == "websocket.http.response.start":
                    self._started = True
                elif event["type"] == "websocket.close" or (
                    event["type"] == "websocket.http.response.body" and not event.get("more_body", False)
                ):
                    self._closed = True
                    self.status = str(event.get("code", 1000))
                await self._pass_on(event)
            elif isinstance(part, End):
                if not self._closed:
                    self._closed = True
                    await self._pass_on({"type": "websocket.close", "code": 1000})
                    self.status = "1000"
                return
            elif isinstance(part, Failure):
                await self._fail(answers.text(500, SERVER_ERROR))
                return
            else:
                raise TypeError(
                    f"The replica {exchange.replica} answered a WebSocket with {type(part).__name__}."
                )

    async def _pass_on(self, event: MutableMapping[str, Any]) -> None:
        try:
            await self._send(event)
        except OSError as error:  # as ASGI says
            raise _ClientGoneError from error

    async def _forward(self) -> None:
        while True:
            event = await self._receive()
            if self._exchange is None:  # before it is accepted, a client can only leave
                self.leave()
                return
            await self._exchange.send_event(dict(event))
            if event["type"] == "websocket.disconnect":
                return

    async def _fail(self, answer: Answer) -> None:
        if self._closed:
            return
        self._closed = True
        self.status = "1011" if self._started else str(answer.status)
        try:
            if self._started:
                await self._send({"type": "websocket.close", "code": 1011})
            else:
                await _deny(self._send, answer)
        except OSError:  # the client has gone meanwhile
            pass

    def _give_up(self) -> None:
        if self._exchange is not None:
            self._exchange.cancel()


class _ClientGoneError(Exception):
    """There is nobody to send to."""


def _timeout_s(value: str, default_s: float | None) -> float | None:
    """Of the header x-request-timeout-seconds; 0 and negative ones switch it off."""
    try:
        timeout_s = float(value)
    except ValueError:
        return default_s
    return limit_s(timeout_s) if math.isfinite(timeout_s) else default_s


def _with_arrived(chunk: Chunk, exchange: Exchange) -> tuple[bytes, bool]:
    """A part of a response together with small ones that have arrived after it, since each costs a write to the client;
    and whether more come."""
    if not chunk.more:
        return chunk.body, False
    bodies, room = [chunk.body], JOINED_BYTES - len(chunk.body)
    while chunk.more and (following := exchange.arrived(room)) is not None:
        chunk = following
        bodies.append(chunk.body)
        room -= len(chunk.body)
    return b"".join(bodies), chunk.more


async def _send(send: Send, answer: Answer, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers + headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})


async def _deny(send: Send, answer: Answer) -> None:
    """Answers the opening of a WebSocket with a response."""
    await send({"type": "websocket.http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "websocket.http.response.body", "body": answer.body, "more_body": False})
