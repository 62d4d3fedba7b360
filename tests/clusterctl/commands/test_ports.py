"""Forwarded ports: what is accepted, and where they lead."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from clusterctl.commands.ports import forward, parse
from clusterctl.errors import CliError, UsageProblem
from clusterctl.shell.local import LocalShell


@pytest.mark.parametrize(("text", "pair"), [("8265", (8265, 8265)), ("9000:80", (9000, 80))])
def test_ports_are_read(text: str, pair: tuple[int, int]) -> None:
    assert parse(text) == pair


@pytest.mark.parametrize("text", ["", "x", "80:", ":80", "0", "65536", "-1", "1:2:3"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match="--port-forward takes"):
        parse(text)


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            stream, _ = listener.accept()
            with stream:
                while data := stream.recv(100):
                    stream.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_chosen_port_leads_to_another(echo: int) -> None:
    wanted = free_port()
    with forward(LocalShell("/", {}), echo, wanted) as here:
        assert here == wanted
        with socket.create_connection(("127.0.0.1", here)) as stream:
            stream.sendall(b"hello")
            stream.shutdown(socket.SHUT_WR)
            assert b"".join(iter(lambda: stream.recv(100), b"")) == b"hello"


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(CliError, match=f"port {port} of this machine is in use"),
            forward(LocalShell("/", {}), 1, port),
        ):
            pass
