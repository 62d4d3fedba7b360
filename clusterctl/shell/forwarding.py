"""A local port that leads somewhere else."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from autoscaler.provider import Shell, ShellError

log = logging.getLogger(__name__)
_BLOCK = 65536
_END_S = 0.2
OnTunnel = Callable[[ShellError | None], None]
"""Is told why a connection got no tunnel; None: it got one."""


class Tunnel(Protocol):
    """The far end of a forwarded connection; an SSH channel is one."""

    def fileno(self) -> int: ...
    def recv(self, size: int, /) -> bytes: ...
    def sendall(self, data: bytes, /) -> None: ...
    def shutdown_write(self) -> None: ...
    def close(self) -> None: ...


@contextlib.contextmanager
def forwarded(tunnel: Callable[[], Tunnel], at: int = 0, on_tunnel: OnTunnel | None = None) -> Iterator[int]:
    """While it lasts, every connection to the local port (its value) becomes a `tunnel` of its own.

    Args:
        at: the port; 0: any free one.
        on_tunnel: is told of every connection whether it got its tunnel, before the connection closes for lack of one.
            Threads of their own call it.

    Raises:
        OSError: the port is in use.
    """
    over, end = socket.socketpair()
    connections: list[_Connection] = []

    def accept() -> None:
        while listener in (ready := select.select([listener, over], [], [])[0]) and over not in ready:
            stream, _ = listener.accept()
            connections[:] = [connection for connection in connections if connection.thread.is_alive()]
            connections.append(_Connection(stream, tunnel, over, on_tunnel))
            connections[-1].thread.start()

    with over, end, socket.create_server(("127.0.0.1", at)) as listener:
        acceptor = threading.Thread(target=accept, name="forwarding", daemon=True)
        acceptor.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            end.shutdown(socket.SHUT_WR)  # readable for all of them, for good
            acceptor.join()
            for connection in connections:
                connection.end()


@contextlib.contextmanager
def forwarded_at(shell: Shell, port: int, at: int, on_tunnel: OnTunnel | None = None) -> Iterator[int]:
    """Like `Shell.forward`, from the local port `at`; 0: from any.

    Raises:
        OSError: the local port is in use.
    """
    with shell.forward(port, on_tunnel) as there:
        if at in (0, there):
            yield there
        else:
            with forwarded(lambda: _Loopback(there), at) as here:
                yield here


class _Loopback(socket.socket):
    """A connection to a port of this machine, as `Tunnel`."""

    def __init__(self, port: int) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self.connect(("127.0.0.1", port))
        except OSError as error:
            self.close()
            raise ShellError(str(error)) from error

    def shutdown_write(self) -> None:
        self.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)  # frees whoever waits for it
        super().close()


class _Connection:
    """A connection to the local port. Its thread copies both ways until either side has ended, or all is over."""

    def __init__(
        self,
        stream: socket.socket,
        tunnel: Callable[[], Tunnel],
        over: socket.socket,
        on_tunnel: OnTunnel | None,
    ) -> None:
        self._on_tunnel = on_tunnel or (lambda failure: None)
        self.thread = threading.Thread(target=self._run, name="forwards a connection", daemon=True)
        self._stream = stream
        self._tunnel = tunnel
        self._over = over
        self._channel: Tunnel | None = None
        self._is_over = False

    def end(self) -> None:
        """Waits for the thread, once `over` is readable. Where it waits for a side that reads no more, it is freed.
        Nobody waits for one that opens its tunnel still, which may take long: it ends when that has come, or failed."""
        self._is_over = True
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self.thread.join(_END_S)
        if self.thread.is_alive() and self._channel is not None:
            self._channel.close()
            self.thread.join()

    def _run(self) -> None:
        with self._stream as stream:
            try:
                self._channel = channel = self._tunnel()
            except ShellError as error:
                log.debug("no tunnel: %s", error)
                self._on_tunnel(error)
                return
            self._on_tunnel(None)
            with contextlib.closing(channel), contextlib.suppress(OSError, ShellError):
                if not self._is_over:  # else `over` may be closed
                    self._copy(stream, channel)

    def _copy(self, stream: socket.socket, channel: Tunnel) -> None:
        sources: list[socket.socket | Tunnel] = [stream, channel]
        while len(sources) == 2 or sources == [channel]:
            ready = select.select([*sources, self._over], [], [])[0]
            if self._over in ready:
                return
            if channel in ready:
                data = channel.recv(_BLOCK)
                if not data:
                    return
                stream.sendall(data)
            if stream in ready:
                data = stream.recv(_BLOCK)
                if data:
                    channel.sendall(data)
                else:
                    channel.shutdown_write()
                    sources.remove(stream)
