"""Channels over Unix sockets, for the processes of one node. Only processes of the same user get one."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable

from runtime._system import files

from .channel import Handler, StreamChannel

log = logging.getLogger(__name__)
_UCRED = struct.Struct("3i")
MAX_PATH_BYTES = 107


def peer_credentials(connection: socket.socket) -> tuple[int, int, int]:
    """Returns `(pid, uid, gid)` of the process at the other end of a connected Unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, gid = _UCRED.unpack(raw)
    return pid, uid, gid


class _AcceptedChannel(StreamChannel):
    """A channel that exists for its owner only once the peer's user is known to be ours."""

    def __init__(self, on_channel: Callable[[StreamChannel], None], name: str) -> None:
        super().__init__(None, name)
        self._on_channel = on_channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        pid, uid, _ = peer_credentials(transport.get_extra_info("socket"))
        if uid not in (os.getuid(), 0):
            log.warning("refusing process %d of user %d on %s", pid, uid, self.name)
            self.close()
            return
        self._on_channel(self)


class UnixListener:
    """A listening Unix socket. `stop` closes it and removes its file; accepted channels live on."""

    def __init__(self, path: str, server: asyncio.Server) -> None:
        self.path = path
        self._server = server

    def stop(self) -> None:
        self._server.close()
        files.remove(self.path)


async def serve_unix(path: str, on_channel: Callable[[StreamChannel], None], name: str) -> UnixListener:
    """Listens on `path` (its directory must be private) and hands every accepted channel to `on_channel`,
    which sets its handler.

    Raises:
        OSError: the path is too long for a socket, or cannot be bound.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(
            f"the socket path {path} is longer than {MAX_PATH_BYTES} bytes: "
            "set CLUSTERCTL_TMPDIR to a shorter directory"
        )
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: _AcceptedChannel(on_channel, name), path, backlog=1024)
    os.chmod(path, 0o600)
    return UnixListener(path, server)


async def connect_unix(path: str, handler: Handler | None = None, name: str = "") -> StreamChannel:
    """Connects to a listener of `serve_unix`.

    Raises:
        OSError: nobody listens there.
    """
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_unix_connection(lambda: StreamChannel(handler, name), path)
    return channel
