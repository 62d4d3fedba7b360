"""A local port that leads somewhere else."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from autoscaler.provider import ShellError

if TYPE_CHECKING:
    import paramiko

log = logging.getLogger(__name__)
_BLOCK = 65536


@contextlib.contextmanager
def forwarded(tunnel: Callable[[], paramiko.Channel]) -> Iterator[int]:
    """While it lasts, every connection to the local port (its value) becomes a `tunnel` of its own."""
    over, end = socket.socketpair()
    connections: list[threading.Thread] = []

    def accept() -> None:
        while listener in (ready := select.select([listener, over], [], [])[0]) and over not in ready:
            stream, _ = listener.accept()
            connections[:] = [thread for thread in connections if thread.is_alive()]
            connections.append(threading.Thread(target=_serve, args=(stream, tunnel, over), daemon=True))
            connections[-1].start()

    with over, end, socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=accept, name="ssh forwarding", daemon=True)
        acceptor.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            end.shutdown(socket.SHUT_WR)  # readable for all of them, for good
            acceptor.join()
            for thread in connections:
                thread.join()


def _serve(stream: socket.socket, tunnel: Callable[[], paramiko.Channel], over: socket.socket) -> None:
    """Copies both ways until either side has ended, or all is over."""
    with stream:
        try:
            channel = tunnel()
        except ShellError as error:
            log.debug("no tunnel: %s", error)  # whoever connected sees the connection close
            return
        with contextlib.closing(channel), contextlib.suppress(OSError):
            sources: list[socket.socket | paramiko.Channel] = [stream, channel]
            while len(sources) == 2 or sources == [channel]:
                ready = select.select([*sources, over], [], [])[0]
                if over in ready:
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
