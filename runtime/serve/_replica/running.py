"""One request that runs: its task, its flow control, its last message."""

from __future__ import annotations

import asyncio
import contextvars
import time
from abc import ABC, abstractmethod
from typing import Any, Protocol

from runtime import exceptions
from runtime.serve import context
from runtime.serve._replica.threads import Threads
from runtime.serve._replica.user_code import UserCode
from runtime.serve._wire import values
from runtime.serve._wire.connection import Connection
from runtime.serve._wire.messages import WINDOW_BYTES, Chunk, Event, Failure, Message, Meta, Window

USER, CANCELLED, REFUSED = "user", "cancelled", "refused"


class Peer:
    """One connection of a caller.

    Attributes:
        running: its requests whose last message is not sent, by their numbers.
        kept: large values that it has not read yet.
        is_known: its `Hello` came.
        hello_timer: closes a connection without one.
    """

    connection: Connection
    hello_timer: asyncio.TimerHandle

    def __init__(self) -> None:
        self.running: dict[int, Running] = {}
        self.kept = values.Kept()
        self.is_known = False


class RequestHost(Protocol):
    """What requests need of the replica that they run in.

    Attributes:
        context: what the code of requests starts with.
    """

    loop: asyncio.AbstractEventLoop
    context: contextvars.Context
    user: UserCode
    threads: Threads

    def finished(self, request: Running) -> bool:
        """A request is about to send its last message. Returns whether its caller keeps the slot."""

    def ended(self, request: Running) -> None:
        """The code of a request has ended."""

    def failure(self, request: Running, error: BaseException) -> exceptions.RayTaskError:
        """An error of the user's code for its caller."""

    def failed_after_answer(self, request: Running, error: BaseException) -> None:
        """The code of a request raised although its answer is complete."""


class Running(ABC):
    """A request from its first message to the end of its code.

    Attributes:
        over: its last message is sent; its code may still run, as background tasks of an ASGI application do.
        status: for the access log and metrics, once it is over: "OK", "ERROR", "CANCELLED" or an HTTP status.
        error: what the user's code raised.
    """

    __slots__ = (
        "_credit", "_deadline", "_has_begun", "_is_unwanted", "_room", "_task", "began", "error", "meta", "number",
        "over", "peer", "service", "status",
    )  # fmt: skip

    method = ""
    """For the access log."""
    is_http = False

    def __init__(self, service: RequestHost, peer: Peer, number: int, meta: Meta) -> None:
        self.service = service
        self.peer = peer
        self.number = number
        self.meta = meta
        self.began = time.perf_counter()
        self.over = False
        self.status = ""
        self.error: BaseException | None = None
        self._credit = WINDOW_BYTES
        self._room: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._deadline = context.Deadline(meta.deadline_s) if meta.deadline_s else None
        self._has_begun = False
        self._is_unwanted = False  # it was cancelled before its first turn

    @property
    def target(self) -> str:
        """For the access log: the path or the method that was called."""
        return self.meta.route

    def start(self) -> None:
        """Begins, on the next turn of the event loop."""
        self._task = self.service.loop.create_task(self._run(), context=self.service.context.copy())

    async def _run(self) -> None:
        self._has_begun = True
        meta = self.meta
        context._serve_request_context.set(
            context.RequestContext(
                meta.route, meta.request_id, meta.request_id, meta.app, meta.model_id, meta.session_id,
                is_http_request=self.is_http, trace=meta.trace, _client=self.client,
                _deadline=self._deadline,
            )
        )  # fmt: skip
        try:
            if self._is_unwanted:
                raise asyncio.CancelledError
            await self._answer()
        except asyncio.CancelledError as error:
            self._fail(CANCELLED, error)
        except Exception as error:
            self._fail(CANCELLED if self.is_departure(error) else USER, error)
        except BaseException as error:  # of the user's code: its caller waits, and the event loop must go on
            self._fail(USER, error)
        finally:
            self.service.ended(self)

    @property
    def client(self) -> str:
        """Who sent it: host:port of an HTTP client."""
        return ""

    @abstractmethod
    async def _answer(self) -> None:
        """Runs the user's code and sends what it returns, the last message included."""

    def is_departure(self, error: Exception) -> bool:
        """Whether code ended with an error because the client is gone: nobody's mistake."""
        return False

    # ------------------------------------------------------------ what its caller says

    def cancel(self) -> None:
        """Its caller does not wait any more, or the replica stops."""
        if not self._has_begun:
            self._is_unwanted = True  # a task that is cancelled before its first turn would not even answer
        elif self._task is not None:
            self._task.cancel()

    def window(self, size: int) -> None:
        """Its caller has used so many bytes."""
        self._credit += size
        if self._credit > 0:
            self._give_room()

    def _give_room(self) -> None:
        if self._room is not None:
            if not self._room.done():
                self._room.set_result(None)
            self._room = None

    def chunk(self, message: Chunk) -> None:
        """A part of the request's body."""
        raise ValueError(f"Request {self.number} has no body.")

    def event(self, message: Event) -> None:
        """An event of a WebSocket."""
        raise ValueError(f"Request {self.number} is no WebSocket.")

    # ------------------------------------------------------------ answers

    def send(self, message: Message) -> None:
        """Sends a message that is not the last one."""
        self.peer.connection.send(message)

    async def send_counted(self, message: Message, size: int) -> None:
        """Sends a message whose bytes the caller's window limits. Sends at least one, however large it is."""
        if self._credit <= 0:
            await self.wait_for_room()
        if self.over:  # another task has ended the answer meanwhile
            return
        self._credit -= size
        self.peer.connection.send(message)

    async def wait_for_room(self) -> None:
        """Waits until the caller takes more bytes, or the request is over. The caller cancels a request whose response
        it does not read."""
        while self._credit <= 0 and not self.over:
            if self._room is None:
                self._room = self.service.loop.create_future()
            await asyncio.shield(self._room)

    def consumed(self, size: int) -> None:
        """Tells the caller that so many bytes of the body are used."""
        self.peer.connection.send(Window(self.number, size))

    def finish(self, status: str) -> bool:
        """Before the last message, which says what this returns: whether the caller keeps the slot."""
        self.over = True
        self.status = status
        self._give_room()  # other tasks of the user's code may wait for it
        if self._deadline is not None and status != "CANCELLED":
            self._deadline.is_met = True
        return self.service.finished(self)

    def _fail(self, kind: str, error: BaseException) -> None:
        if self.over:
            self.service.failed_after_answer(self, error)
            return
        self.error = error
        body = values.dump_failure(self.service.failure(self, error)) if kind == USER else b""
        self.peer.kept.ended(self.number)
        keep = self.finish("ERROR" if kind == USER else "CANCELLED")
        self.peer.connection.send(Failure(self.number, kind, body, keep, self.dumped_context()))

    def dumped_context(self) -> bytes:
        """Of a gRPC request; see `Call.context`."""
        return b""


def text_of(client: Any) -> str:
    """A client's address as logs show it."""
    if not client:
        return ""
    host, port = client
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
