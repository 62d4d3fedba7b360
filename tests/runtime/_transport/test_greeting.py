"""Handshakes over real sockets: honest peers are let in, however many come at once; silent ones keep nobody out."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runtime._transport import greeting
from runtime._transport.greeting import connect_proven, prove, unproven_limit
from runtime._transport.pump import REST_S, Pump
from runtime._wire.framing import encode_frame
from runtime._wire.handshake import GREETING_BYTES, Handshake, HandshakeError
from runtime._wire.messages import codec
from runtime._wire.messages.worker import ReturnRefs
from tests.polling import eventually
from tests.runtime._transport.pair import (
    LIMIT_S,
    SECRET,
    Server,
    ask,
    dial,
    ignore,
    in_threads,
    tcp_server,
    wait_for_the_end,
)


def test_a_peer_that_drips_is_dropped_by_the_deadline_of_the_whole_handshake() -> None:
    with tcp_server() as (server, port), dial(port) as sock:
        server.pump.greeter.timeout_s = 0.3
        sock.settimeout(0.02)
        ended, sent = False, 0
        while not ended:
            try:
                sock.sendall(b"C")  # each byte in time, and never enough of them
                sent += 1
                ended = not sock.recv(1000)
            except TimeoutError:
                continue
            except (ConnectionResetError, BrokenPipeError):
                ended = True
        assert sent > 1
        assert server.accepted == []
        assert not server.pump.greeter.peers


def test_a_silent_peer_is_dropped_though_nothing_happens() -> None:
    with tcp_server() as (server, port):
        server.pump.greeter.timeout_s = 0.05
        with dial(port) as sock:
            wait_for_the_end(sock)
        assert server.accepted == []


def test_many_silent_peers_cost_no_threads_and_keep_no_proper_one_out() -> None:
    pump = Pump(ignore)
    pump.start()
    with tcp_server() as (server, port), contextlib.ExitStack() as silent:
        server.pump.greeter.limit, server.pump.greeter.crowded_s = 64, 0.05
        threads = threading.active_count()
        socks = [silent.enter_context(dial(port)) for _ in range(200)]
        wait_for_the_end(socks[0])
        assert threading.active_count() == threads
        connection = pump.connect_tcp("127.0.0.1", port, SECRET, "server")
        assert pump.call(connection, ask(1), LIMIT_S).value.data == b"\0"
        assert 0 < len(server.pump.greeter.peers) <= server.pump.greeter.limit
        assert server.pump.greeter.dropped >= 200 - server.pump.greeter.limit
        assert len(server.accepted) == 1
    pump.stop()


def prove_all(socks: list[socket.socket]) -> None:
    """Proves the secret on all connections at once, and sends the number of each as a note."""

    def job(number: int) -> None:
        prove(socks[number], SECRET, is_client=True, timeout_s=LIMIT_S)
        socks[number].sendall(encode_frame(codec.encode(ReturnRefs([number.to_bytes(4, "big")]))))

    in_threads(len(socks), job)


@pytest.mark.parametrize("limit", [None, 16])
def test_honest_peers_that_come_all_at_once_are_all_let_in(limit: int | None) -> None:
    server = Server()
    port = server.pump.listen_tcp("127.0.0.1", server.accepted.append)
    if limit is not None:
        server.pump.greeter.limit, server.pump.greeter.crowded_s = limit, LIMIT_S
    with contextlib.ExitStack() as open_socks:
        socks = [open_socks.enter_context(dial(port)) for _ in range(400)]  # they wait for `admit`
        server.pump.admit(SECRET)
        server.pump.start()
        prove_all(socks)
        assert eventually(lambda: len(server.notes) == 400)
        assert sorted(server.notes) == [number.to_bytes(4, "big") for number in range(400)]
        assert server.pump.greeter.dropped == 0
        server.pump.stop()


def test_many_workers_connect_to_one_at_once() -> None:
    pump = Pump(ignore)
    pump.start()
    with tcp_server() as (server, port):
        connections = [pump.connect_tcp("127.0.0.1", port, SECRET, "server") for _ in range(200)]
        replies: list[Any] = []
        for connection in connections:
            connection.call(ask(1), replies.append)
        assert pump.wait(lambda: len(replies) == 200, LIMIT_S)
        assert {type(reply).__name__ for reply in replies} == {"ObjectValue"}
        assert len(server.accepted) == 200
        pump.stop()


def test_a_proof_that_lies_unread_is_read_before_its_peer_counts_as_late() -> None:
    server = Server()
    port = server.pump.listen_tcp("127.0.0.1", server.accepted.append)
    server.pump.admit(SECRET)
    server.pump.greeter.timeout_s = 0.0  # late from the beginning
    with dial(port) as sock:
        server.pump.poll_once()
        handshake = Handshake(SECRET, is_client=True)
        sock.sendall(handshake.greeting + handshake.proof(sock.recv(GREETING_BYTES, socket.MSG_WAITALL)))
        server.pump.poll_once()
        assert len(server.accepted) == 1
    server.pump.stop()


def test_a_silent_peer_is_dropped_beside_an_outer_loop_that_rests() -> None:
    with tcp_server() as (server, port):
        server.pump.on_wait = lambda: REST_S
        server.pump.drive_externally()
        server.pump.greeter.timeout_s = 0.05
        with dial(port) as sock:
            wait_for_the_end(sock)  # nobody calls poll_once


def test_the_limit_of_unproven_peers_leaves_half_of_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    def limit_of(soft: int) -> int:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
        return unproven_limit()

    assert [limit_of(soft) for soft in (1024, 1 << 20, resource.RLIM_INFINITY)] == [512, 4096, 4096]


@contextlib.contextmanager
def refusing(*ends: Callable[[socket.socket], None]) -> Iterator[tuple[int, list[int]]]:
    """A listener that does this with one caller after the other; yields its port and whom it has served."""
    served: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT_S)

        def serve() -> None:
            for number, end in enumerate(ends):
                with listener.accept()[0] as peer:
                    peer.settimeout(LIMIT_S)
                    end(peer)
                served.append(number)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], served
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang_up(peer: socket.socket) -> None:
    peer.recv(GREETING_BYTES, socket.MSG_WAITALL)


def take_in(peer: socket.socket) -> None:
    prove(peer, SECRET, is_client=False)
    wait_for_the_end(peer)


def deceive(peer: socket.socket) -> None:
    with contextlib.suppress(HandshakeError, OSError):
        prove(peer, b"guess", is_client=False)


def test_a_client_whose_handshake_is_cut_off_tries_again() -> None:
    pump = Pump(ignore)
    pump.start()
    with refusing(reset, hang_up, reset, take_in) as (port, served):
        connection = pump.connect_tcp("127.0.0.1", port, SECRET, "crowded")
        with pump.lock:
            connection.send(ReturnRefs([b"note"]))
        assert eventually(lambda: len(served) == 3 and connection._sock is not None)
        assert not connection.closed
        pump.stop()


def test_a_client_that_meets_another_secret_does_not_try_again() -> None:
    pump = Pump(ignore)
    pump.start()
    with refusing(deceive) as (port, served):
        replies: list[Any] = []
        with pump.lock:  # the refusal comes after the call
            pump.connect_tcp("127.0.0.1", port, SECRET, "stranger").call(ask(1), replies.append)
        assert pump.wait(lambda: replies, LIMIT_S)
        assert "does not know the secret" in replies[0].message
        assert eventually(lambda: served == [0])
        pump.stop()


def test_a_client_gives_up_at_its_deadline_or_when_nobody_wants_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with refusing(reset) as (port, _), pytest.raises(ConnectionError):
        connect_proven("127.0.0.1", port, SECRET, LIMIT_S, lambda: False)
    monkeypatch.setattr(greeting, "HANDSHAKE_TIMEOUT_S", 0.0)
    with refusing(reset) as (port, _), pytest.raises(OSError):
        connect_proven("127.0.0.1", port, SECRET, 0.01, lambda: True)


def lowest_free_descriptor() -> int:
    fd = os.dup(0)
    os.close(fd)
    return fd


def test_a_listener_without_descriptors_pauses_and_goes_on_later() -> None:
    server = Server()
    port = server.pump.listen_tcp("127.0.0.1", server.accepted.append)
    server.pump.admit(SECRET)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with dial(port) as sock:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free_descriptor(), hard))
        try:
            server.pump.poll_once()
            assert server.pump.epoll.poll(0) == []  # else the pump would spin
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        server.pump.start()
        prove_all([sock])
        assert eventually(lambda: len(server.notes) == 1)
        server.pump.stop()
