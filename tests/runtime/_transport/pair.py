"""A pump, and a server at the other end of a real socket."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from runtime._transport.connection import Connection
from runtime._transport.pump import Pump
from runtime._wire.messages.worker import GetObject, ObjectValue, ReturnRefs, Value

LIMIT_S = 30.0
SECRET = b"s" * 32


class Server:
    """Answers `GetObject(n)` with n bytes, `BorrowRefs` never, and notes the one-way messages."""

    def __init__(self) -> None:
        self.pump = Pump(self._handle)
        self.notes: list[bytes] = []
        self.accepted: list[Connection] = []
        self.threads: set[str] = set()

    def _handle(self, connection: Connection, message: Any, correlation: int) -> None:
        self.threads.add(threading.current_thread().name)
        if isinstance(message, GetObject):
            size = int.from_bytes(message.object_id, "big")
            connection.reply(ObjectValue(Value(0, bytes(size))), correlation)
        elif isinstance(message, ReturnRefs):
            self.notes += message.object_ids


def ask(size: int) -> GetObject:
    return GetObject(size.to_bytes(4, "big"))


def ignore(_connection: Connection, _message: Any, _correlation: int) -> None:
    pass


@contextlib.contextmanager
def client_and_server() -> Iterator[tuple[Pump, Connection, Server]]:
    """A client's pump, its connection, and the server at the other end; both with their background threads."""
    ours, theirs = socket.socketpair()
    server, pump = Server(), Pump(ignore)
    server.accepted.append(server.pump.add(theirs, "client"))
    connection = pump.add(ours, "server")
    server.pump.start()
    pump.start()
    try:
        yield pump, connection, server
    finally:
        pump.stop()
        server.pump.stop()


@contextlib.contextmanager
def tcp_server(secret: bytes = SECRET) -> Iterator[tuple[Server, int]]:
    server = Server()
    port = server.pump.listen_tcp("127.0.0.1", server.accepted.append)
    server.pump.admit(secret)
    server.pump.start()
    try:
        yield server, port
    finally:
        server.pump.stop()


def dial(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.settimeout(LIMIT_S)
    return sock


def wait_for_the_end(sock: socket.socket) -> None:
    """Returns when the other side has closed the connection."""
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(1000):
            pass


def in_threads(count: int, job: Callable[[int], None]) -> None:
    """Runs a job in many threads at once; the first error is raised here."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            job(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
