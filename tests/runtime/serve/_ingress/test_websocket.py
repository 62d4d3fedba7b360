"""WebSockets through a real ingress."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("websockets")
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.runtime.serve._ingress.conftest import Served

Serve = Callable[..., Served]


def open_socket(served: Served, path: str = "/", **options: object) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{served.port}{path}", **options)  # type: ignore[arg-type]


def test_messages_both_ways(serve: Serve) -> None:
    served = serve()
    with open_socket(
        served, subprotocols=["chat"], additional_headers={"x-request-id": "mine"}, max_size=None
    ) as sock:
        assert sock.subprotocol == "chat"
        assert sock.response is not None
        assert sock.response.headers["x-request-id"] == "mine"
        for message in ("text", b"bytes", "", "x" * 1_000_000, bytes(3_000_000)):
            sock.send(message)
            assert sock.recv(timeout=20) == message
        assert served.app.ongoing == 1
    served.until(served.is_idle)


def test_the_application_closes(serve: Serve) -> None:
    served = serve()
    with open_socket(served) as sock:
        sock.send("close")
        with pytest.raises(ConnectionClosed) as closed:
            sock.recv(timeout=20)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4000, "asked")
    served.until(served.is_idle)


def test_the_application_fails(serve: Serve) -> None:
    served = serve()
    with open_socket(served) as sock:
        sock.send("fail")
        with pytest.raises(ConnectionClosed) as closed:
            sock.recv(timeout=20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1011
    served.until(served.is_idle)


@pytest.mark.parametrize(
    ("path", "status"), [("/refuse", 403), ("/fail", 500), ("/full", 503), ("/gone", 503)]
)
def test_refused_openings(serve: Serve, path: str, status: int) -> None:
    served = serve()
    with pytest.raises(InvalidStatus) as refused:
        open_socket(served, path)
    assert refused.value.response.status_code == status
    served.until(served.is_idle)


@pytest.mark.parametrize("path", ["/hang", "/busy"])
def test_an_opening_that_takes_too_long(serve: Serve, path: str) -> None:
    served = serve(request_timeout_s=0.05)
    with pytest.raises(InvalidStatus) as refused:
        open_socket(served, path)
    assert refused.value.response.status_code == 408
    served.until(served.is_idle)


def test_the_time_limit_ends_with_the_opening(serve: Serve) -> None:
    served = serve(request_timeout_s=0.2)
    with open_socket(served) as sock:
        with pytest.raises(TimeoutError):
            sock.recv(timeout=0.3)
        sock.send("still here")
        assert sock.recv(timeout=20) == "still here"


def test_a_client_that_leaves_before_it_is_accepted(serve: Serve) -> None:
    served = serve()
    with pytest.raises(TimeoutError):
        open_socket(served, "/busy", open_timeout=0.1)
    served.until(served.is_idle)


def test_the_replica_dies(serve: Serve) -> None:
    served = serve()
    with open_socket(served) as sock:

        async def die() -> None:
            served.caller.connection.close()

        served.run(die())
        with pytest.raises(ConnectionClosed) as closed:
            sock.recv(timeout=20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1011
    served.until(served.is_idle)


def test_drain_closes_sockets(serve: Serve) -> None:
    served = serve()
    with open_socket(served) as sock:
        assert served.run(served.server.drain(0.1)) == 1
        with pytest.raises(ConnectionClosed):
            sock.recv(timeout=20)
    served.until(served.is_idle)
