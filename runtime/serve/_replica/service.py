"""The sockets of a replica: connections of callers, slots, requests that run. All on one event loop."""

from __future__ import annotations

import asyncio
import contextvars
import hmac
import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from runtime import exceptions
from runtime.serve._core.slots import Lender
from runtime.serve._replica.calls import RunningCall
from runtime.serve._replica.http import RunningHttp, RunningWebSocket
from runtime.serve._replica.log import NAME, ReplicaLog
from runtime.serve._replica.measures import Measures
from runtime.serve._replica.running import REFUSED, Peer, Running
from runtime.serve._replica.threads import Threads
from runtime.serve._replica.user_code import UserCode
from runtime.serve._wire import messages
from runtime.serve._wire.connection import Connection
from runtime.serve._wire.messages import Failure, Models, Statistics, Welcome

logger = logging.getLogger(NAME)

FLUSH_S = 0.2
"""How often the access log and the metrics are written."""
HELLO_S = 10.0
"""A connection without a `Hello` is closed after this time."""
CANCEL_S = 2.0
"""How long a drain waits for requests that it has cancelled."""


class Service:
    """Answers the callers of one replica.

    Args:
        replica: its id.
        token: what callers show.
        slots: requests at a time.
        changed: is called after the number of requests that run has changed.
        facts: node_ip and actor_id, for the errors of the user's code.
    """

    def __init__(
        self,
        replica: str,
        token: bytes,
        slots: int,
        user: UserCode,
        threads: Threads,
        log: ReplicaLog,
        changed: Callable[[], None],
        facts: dict[str, str],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.context = contextvars.copy_context()
        self.user = user
        self.threads = threads
        self.models: list[str] = []
        self._replica = replica
        self._token = token
        self._log = log
        self._changed = changed
        self._facts = facts
        self._lender = Lender(slots)
        self._measures = Measures()
        self._peers: set[Peer] = set()
        self._alive: set[Running] = set()
        self._servers: list[asyncio.Server] = []
        self._flush: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None
        self._statistics: dict[str, Any] | None = None
        self._handlers: dict[type, Callable[[Peer, Any], None]] = {
            messages.Want: self._want,
            messages.Return: self._return,
            messages.Call: lambda peer, call: self._begin(peer, call, RunningCall),
            messages.Http: lambda peer, request: self._begin(
                peer, request, RunningHttp if request.kind == "http" else RunningWebSocket
            ),
            messages.Cancel: self._cancel,
            messages.Chunk: self._chunk,
            messages.Event: self._event,
            messages.Window: self._window,
        }

    @property
    def ongoing(self) -> int:
        """Requests that run."""
        return self._lender.ongoing

    async def listen(self, host: str) -> tuple[str, int]:
        """Listens on a socket of Linux's abstract namespace and on a port. Returns the socket's name and the port."""
        name = f"\0serve-{self._replica.rpartition('#')[2]}-{os.getpid()}"
        unix = socket.socket(socket.AF_UNIX)  # uvloop takes no abstract name, only a socket
        unix.bind(name)
        self._servers.append(await self.loop.create_unix_server(self._connected, sock=unix))
        tcp = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._servers.append(await self.loop.create_server(self._connected, sock=tcp))
        port: int = tcp.getsockname()[1]
        return name, port

    def resize(self, slots: int) -> None:
        """Changes how many requests may run."""
        self._perform(self._lender.resize(slots))

    async def drain(self, timeout_s: float) -> int:
        """Recalls all slots and waits until the last request has ended. When the time is over, cancels what runs.
        Returns how many requests were cancelled."""
        self._perform(self._lender.drain())
        await self._wait_idle(timeout_s)
        left = list(self._alive)
        for request in left:
            Running.cancel(request)
        if left:
            await self._wait_idle(CANCEL_S)
        return len(left)

    async def _wait_idle(self, timeout_s: float) -> None:
        if self._is_idle:
            return
        self._idle = self.loop.create_future()
        await asyncio.wait([self._idle], timeout=timeout_s)

    @property
    def _is_idle(self) -> bool:
        return self._lender.is_idle and not self._alive

    def close(self) -> None:
        """Ends all connections."""
        for server in self._servers:
            server.close()
        for peer in list(self._peers):
            peer.connection.close()
        self._record()

    def tell_models(self, ids: list[str]) -> None:
        """Tells all callers which models are loaded. From any thread."""
        self.loop.call_soon_threadsafe(self._tell_models, ids)

    def _tell_models(self, ids: list[str]) -> None:
        if ids != self.models:
            self.models = ids
            self._tell(Models(ids))

    def tell_statistics(self, statistics: dict[str, Any]) -> None:
        """Tells all callers what routers see of this replica.

        Raises:
            TypeError: they cannot travel as a dict of strings and plain values.
        """
        messages.check_statistics(statistics)
        if statistics != self._statistics:
            self._statistics = statistics
            self._tell(Statistics(statistics))

    def _tell(self, message: messages.Message) -> None:
        for peer in self._peers:
            peer.connection.send(message)

    # ------------------------------------------------------------ connections

    def _connected(self) -> Connection:
        peer = Peer()
        connection = peer.connection = Connection(self._received(peer), self._lost(peer), from_replica=False)
        peer.hello_timer = self.loop.call_later(HELLO_S, connection.close)
        return connection

    def _received(self, peer: Peer) -> Callable[[Connection, Any], None]:
        """What takes the messages of a caller."""

        def take(_: Connection, message: Any) -> None:
            handler = self._handlers.get(type(message))
            if peer.is_known and handler is not None:
                handler(peer, message)
            elif not peer.is_known and type(message) is messages.Hello:
                self._hello(peer, message)
            else:
                raise ValueError(f"A {type(message).__name__} that may not come now.")

        return take

    def _hello(self, peer: Peer, hello: messages.Hello) -> None:
        if hello.version != messages.VERSION or not hmac.compare_digest(hello.token, self._token):
            raise PermissionError("A caller with another version or a wrong token.")
        peer.hello_timer.cancel()
        peer.is_known = True
        self._peers.add(peer)
        self._perform(self._lender.connect(peer))
        peer.connection.send(Welcome(self._replica, self._lender.slots))
        if self.models:
            peer.connection.send(Models(self.models))
        if self._statistics is not None:
            peer.connection.send(Statistics(self._statistics))

    def _lost(self, peer: Peer) -> Callable[[Connection, BaseException | None], None]:
        """What hears of the end of a caller's connection: its requests are cancelled."""

        def end(_: Connection, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, OSError):
                logger.warning("A caller's connection is closed: %s", error)
            peer.hello_timer.cancel()
            if not peer.is_known:
                return
            self._peers.discard(peer)
            self._perform(self._lender.gone(peer))
            for request in list(peer.running.values()):
                request.cancel()
            self._check_idle()

        return end

    def _perform(self, effects: list[tuple[Any, Any]]) -> None:
        for peer, message in effects:
            peer.connection.send(message)

    # ------------------------------------------------------------ messages

    def _want(self, peer: Peer, message: messages.Want) -> None:
        self._perform(self._lender.want(peer, message.waiting))

    def _return(self, peer: Peer, message: messages.Return) -> None:
        self._perform(self._lender.give_back(peer, message.slots))
        self._check_idle()

    def _begin(self, peer: Peer, message: Any, kind: Callable[[Service, Peer, Any], Running]) -> None:
        if not self._lender.begin(peer):
            peer.connection.send(Failure(message.number, REFUSED, b"", False))
            return
        request = kind(self, peer, message)
        peer.running[message.number] = request
        self._alive.add(request)
        request.start()
        self._has_changed()

    def _cancel(self, peer: Peer, message: messages.Cancel) -> None:
        request = peer.running.get(message.number)
        if request is not None:
            request.cancel()

    def _chunk(self, peer: Peer, message: messages.Chunk) -> None:
        request = peer.running.get(message.number)
        if request is not None:
            request.chunk(message)

    def _event(self, peer: Peer, message: messages.Event) -> None:
        request = peer.running.get(message.number)
        if request is not None:
            request.event(message)

    def _window(self, peer: Peer, message: messages.Window) -> None:
        peer.kept.used(message.number, message.size)
        request = peer.running.get(message.number)
        if request is not None:
            request.window(message.size)

    # ------------------------------------------------------------ for requests

    def finished(self, request: Running) -> bool:
        """A request is about to send its last message. Returns whether its caller keeps the slot."""
        peer = request.peer
        del peer.running[request.number]
        keep, effects = self._lender.end(peer)
        self._perform(effects)
        seconds = time.perf_counter() - request.began
        self._measures.ended(request, seconds)
        meta = request.meta
        self._log.access(request.method, request.target, request.status, seconds, meta.request_id, meta.route)
        self._has_changed()
        return keep

    def ended(self, request: Running) -> None:
        """The code of a request has ended."""
        self._alive.discard(request)
        self._check_idle()

    def failure(self, request: Running, error: BaseException) -> exceptions.RayTaskError:
        """An error of the user's code for its caller. It is logged, too."""
        failure = exceptions.RayTaskError.from_exception(
            error,
            f"{self.user.name}.{'__call__' if request.is_http else request.target}",
            pid=os.getpid(),
            ip=self._facts.get("node_ip"),
            actor_id=self._facts.get("actor_id"),
        )
        logger.error("Request failed: %s %s\n%s", request.method, request.target, failure.traceback_str)
        return failure

    def failed_after_answer(self, request: Running, error: BaseException) -> None:
        """The code of a request raised although its answer is complete: a background task, or the end of a cancel."""
        if isinstance(error, Exception):
            logger.error("After the response to %s %s:", request.method, request.target, exc_info=error)

    def _check_idle(self) -> None:
        if self._idle is not None and self._is_idle and not self._idle.done():
            self._idle.set_result(None)

    def _has_changed(self) -> None:
        if self._flush is None:
            self._flush = self.loop.call_later(FLUSH_S, self._record)
        self._changed()

    def _record(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        self._log.flush()
        self._measures.record(self._lender.ongoing)
