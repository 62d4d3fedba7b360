"""What a forwarded port does when one side reads no more. That it works is in tests/contract."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from clusterctl.shell.forwarding import _Loopback, forwarded
from tests.polling import eventually


@pytest.fixture
def far() -> Iterator[tuple[int, list[socket.socket]]]:
    """A server: its port, and the connections that it has accepted and does nothing with."""
    accepted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted.append(listener.accept()[0])

        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()[1], accepted
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for stream in accepted:
        stream.close()


def fill(stream: socket.socket) -> None:
    """Sends until nothing more goes."""
    stream.settimeout(0.5)
    with contextlib.suppress(TimeoutError):
        while True:
            stream.sendall(bytes(100_000))


def test_it_ends_while_whoever_is_at_this_end_reads_nothing(far: tuple[int, list[socket.socket]]) -> None:
    port, accepted = far
    with (
        socket.socket() as stream,
        forwarded(lambda: _Loopback(port)) as here,
    ):  # which is over before the stream
        stream.connect(("127.0.0.1", here))
        assert eventually(lambda: accepted)
        fill(accepted[0])


def test_it_ends_while_whoever_is_at_the_far_end_reads_nothing(far: tuple[int, list[socket.socket]]) -> None:
    port, accepted = far
    with forwarded(lambda: _Loopback(port)) as here, socket.create_connection(("127.0.0.1", here)) as stream:
        assert eventually(lambda: accepted)
        fill(stream)


def test_nobody_waits_for_a_tunnel_that_is_still_opening(far: tuple[int, list[socket.socket]]) -> None:
    begun, may_come = threading.Event(), threading.Event()
    came: list[_Loopback] = []

    def opening() -> _Loopback:
        begun.set()
        may_come.wait(30.0)
        came.append(_Loopback(far[0]))
        return came[0]

    with socket.socket() as stream, forwarded(opening) as here:
        stream.connect(("127.0.0.1", here))
        assert begun.wait(30.0)
    assert not came
    may_come.set()
    assert eventually(lambda: came and came[0].fileno() == -1)  # nothing of it stays
    assert eventually(lambda: not any(t.name == "forwards a connection" for t in threading.enumerate()))
