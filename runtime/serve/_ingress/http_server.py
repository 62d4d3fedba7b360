"""The HTTP server of an ingress process: a listening socket, its connections, TLS, drain."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any, cast

from .http_app import HttpIngress
from .http_connection import HttpConnection
from .options import HttpOptions

BACKLOG = 2048
SWEEP_S = 5.0
"""How often connections are looked at that wait for a request."""
IDLE_S = 0.5
"""While draining, a connection without a request for so long is closed."""
POLL_S = 0.02
"""Likewise, how often connections are looked at."""


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket that shares its port with other ingress processes of this host (SO_REUSEPORT); 0 for any free one.

    Raises:
        RuntimeError: another program has the port, or the address is none of this host.
    """
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(kind, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise RuntimeError(
            f"Failed to bind to address '{host}:{port}': {error.strerror}. Stop the program that has the port, or "
            "choose another one: serve.start(http_options={'port': ...})."
        ) from error
    sock.setblocking(False)
    return sock


class HttpServer:
    """Belongs to the event loop that it is started on."""

    def __init__(self, options: HttpOptions, app: HttpIngress, sock: socket.socket) -> None:
        self._options = options
        self._app = app
        self._sock = sock
        self._server: asyncio.Server | None = None
        self._state: Any = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._sock.getsockname()[1])

    async def start(self) -> None:
        """Accepts connections from now on.

        Raises:
            OSError: a file for TLS cannot be read.
            ssl.SSLError: it cannot be used.
        """
        from uvicorn.config import Config
        from uvicorn.server import ServerState

        options = self._options
        config = Config(
            self._app,
            http=HttpConnection,
            ws=_websockets(),
            loop="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            root_path=options.root_path.rstrip("/"),
            timeout_keep_alive=cast(int, options.keep_alive_timeout_s),  # any number will do
            ssl_keyfile=options.ssl_keyfile,
            ssl_certfile=options.ssl_certfile,
            ssl_keyfile_password=options.ssl_keyfile_password,
            ssl_ca_certs=options.ssl_ca_certs,
            ssl_cert_reqs=ssl.CERT_REQUIRED if options.ssl_ca_certs else ssl.CERT_NONE,
        )
        config.load()
        state = self._state = ServerState()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: HttpConnection(config, state, {}, loop), sock=self._sock, ssl=config.ssl, backlog=BACKLOG
        )
        self._sweep_timer = loop.call_later(SWEEP_S, self._sweep)

    async def drain(self, timeout_s: float) -> int:
        """Accepts nothing more and lets running requests end for at most `timeout_s`. A client that still sends
        requests on a connection is told by its next response to open another one; other connections close after
        IDLE_S.

        Returns:
            How many requests were cut off.
        """
        if self._server is None:
            return 0
        loop = asyncio.get_running_loop()
        for _ in range(2):  # turns of the loop in which connections that wait in the backlog are accepted
            await asyncio.sleep(0)
        self._server.close()
        # Not before: clients that are told to connect again could come to the backlog that has just been closed.
        self._app.draining = True
        begin = loop.time()
        while self._state.connections or self._state.tasks:
            now = loop.time()
            if now >= begin + timeout_s:
                break
            for connection in list(self._state.connections):
                if isinstance(connection, HttpConnection) and connection.is_idle(now - IDLE_S, begin):
                    connection.shutdown()
            await asyncio.sleep(POLL_S)
        left = self._app.ongoing
        await self._end()
        return left

    async def close(self) -> None:
        """Ends it at once, also one that did not start."""
        if self._server is not None:
            self._server.close()
            await self._end()
        self._sock.close()

    async def _end(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        tasks = list(self._state.tasks)
        for connection in list(self._state.connections):
            connection.shutdown()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        for connection in list(self._state.connections):
            connection.transport.abort()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self._state.connections):
            if isinstance(connection, HttpConnection):
                connection.expire(now)
        self._sweep_timer = loop.call_later(SWEEP_S, self._sweep)


def _websockets() -> Any:
    """The protocol of WebSockets, if a package for it is installed."""
    try:
        from .socket_connection import SocketConnection
    except ImportError:
        return "auto"
    return SocketConnection
