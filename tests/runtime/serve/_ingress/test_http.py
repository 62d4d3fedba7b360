"""HTTP through a real ingress and a real socket to its replica."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import shutil
import socket
import ssl
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runtime.serve._core.published import Routes
from runtime.serve._ingress import http_connection
from runtime.serve._ingress.http_server import bind
from runtime.serve.exceptions import BackPressureError
from tests.runtime.serve._ingress.conftest import ROUTES, Served

Serve = Callable[..., Served]
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def ask(
    served: Served, path: str, method: str = "GET", body: Any = None, **headers: str
) -> tuple[int, bytes, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    try:
        connection.request(
            method, path, body, {key.replace("_", "-"): value for key, value in headers.items()}
        )
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


def dial(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=20)


def read_all(sock: socket.socket) -> bytes:
    parts = []
    while part := sock.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def read_until(sock: socket.socket, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        part = sock.recv(1 << 16)
        assert part, data
        data += part
    return data


def test_answers(serve: Serve) -> None:
    served = serve()
    status, body, headers = ask(served, "/")
    assert (status, body) == (200, b"ok")
    assert headers["content-type"] == "text/plain"
    assert re.fullmatch(UUID, headers["x-request-id"])
    assert "GMT" in headers["date"]
    assert ask(served, "/", "HEAD")[:2] == (200, b"")
    assert ask(served, "/-/healthz")[:2] == (200, b"success")
    shown = json.loads(ask(served, "/-/routes")[1])
    assert shown == {"/": "app", "/sub": "nested", "/full": "full", "/gone": "gone", "/busy": "busy"}
    assert served.app.ongoing == 0


def test_what_the_replica_sees(serve: Serve) -> None:
    served = serve(request_timeout_s=7)
    path = "/sub/inspect/a%20b?x=1&y=%2F"
    _, body, headers = ask(
        served, path, "DELETE", x_request_id="mine", serve_multiplexed_model_id="m1", traceparent="00-1"
    )
    seen = json.loads(body)
    assert headers.get_all("x-request-id") == ["mine"]
    assert seen["headers"]["x-request-id"] == "mine"
    del seen["headers"]
    assert seen == {
        "path": "/sub/inspect/a b",
        "raw_path": "/sub/inspect/a%20b",
        "root_path": "/sub",
        "query": "x=1&y=%2F",
        "scheme": "http",
        "method": "DELETE",
        "request_id": "mine",
        "model_id": "m1",
        "app": "nested",
        "deadline_s": 7,
        "trace": {"traceparent": "00-1"},
    }
    _, body, headers = ask(served, "/inspect", x_request_timeout_seconds="3")
    seen = json.loads(body)
    assert (seen["root_path"], seen["app"], seen["deadline_s"]) == ("", "app", 3)
    assert seen["request_id"] == seen["headers"]["x-request-id"] == headers["x-request-id"]


def test_root_path(serve: Serve) -> None:
    seen = json.loads(ask(serve(root_path="/outer"), "/sub/inspect")[1])
    assert (seen["path"], seen["root_path"]) == ("/outer/sub/inspect", "/outer/sub")


def test_routes_come_and_go(serve: Serve) -> None:
    served = serve()

    async def update(epoch: int, *indices: int) -> None:
        served.table.update(Routes(epoch, [ROUTES[i] for i in indices]))

    served.run(update(2, 1))
    text = b"Path '/' not found. Ping http://.../-/routes for available routes."
    assert ask(served, "/")[:2] == (404, text)
    assert ask(served, "/subway")[0] == 404
    assert ask(served, "/sub")[0] == 200
    served.run(update(1, 0))  # too old
    assert ask(served, "/")[0] == 404
    served.run(update(3))
    assert ask(served, "/sub")[0] == 404
    assert ask(served, "/-/healthz")[0] == 200


def test_failures_have_their_status(serve: Serve) -> None:
    served = serve()
    status, body, headers = ask(served, "/full")
    assert (status, body) == (503, str(BackPressureError(3, 2)).encode())
    assert headers["retry-after"] == "2"
    assert ask(served, "/gone")[:2] == (503, b"gone is unavailable because it failed to deploy.")
    assert ask(served, "/fail")[:2] == (500, b"Internal Server Error")
    assert ask(served, "/die")[0] == 500
    with pytest.raises(http.client.IncompleteRead) as cut:
        ask(served, "/half")
    assert cut.value.partial == b"half"
    assert ask(served, "/")[0] == 200
    served.until(served.is_idle)


def test_timeout_cancels(serve: Serve) -> None:
    served = serve(request_timeout_s=0.05)
    status, body, headers = ask(served, "/hang")
    assert status == 408
    assert body.decode() == f"Request {headers['x-request-id']} timed out after 0.05s."
    assert ask(served, "/busy")[0] == 408
    served.until(served.is_idle)
    assert served.replica.cancelled == 1


def test_timeout_while_a_body_is_due(serve: Serve) -> None:
    served = serve(request_timeout_s=0.05)
    with dial(served) as sock:
        sock.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123")
        assert read_until(sock, b"0.05s.").startswith(b"HTTP/1.1 408 ")
        sock.sendall(b"4567890GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_until(sock, b"ok").startswith(b"HTTP/1.1 200 ")
    served.until(served.is_idle)


@pytest.mark.parametrize("path", ["/hang", "/busy", "/bytes/100000000"])
def test_a_client_that_leaves_cancels(serve: Serve, path: str) -> None:
    served = serve()
    with dial(served) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        served.until(lambda: served.replica.running or served.caller.waiting)
    served.until(served.is_idle)
    assert served.replica.cancelled == (path != "/busy")


def test_a_client_that_leaves_may_ask_for_no_cancellation(serve: Serve) -> None:
    served = serve()
    with dial(served) as sock:
        sock.sendall(b"GET /hang HTTP/1.1\r\nx-request-disconnect-disabled: ?1\r\n\r\n")
        served.until(lambda: served.replica.running)
    served.until(lambda: not served.server._state.connections)
    assert len(served.replica.running) == 1


def test_a_request_whose_body_will_never_be_whole_ends_even_so(serve: Serve) -> None:
    served = serve()
    with dial(served) as sock:
        sock.sendall(
            b"POST /echo HTTP/1.1\r\nx-request-disconnect-disabled: ?1\r\nContent-Length: 9\r\n\r\n123"
        )
        served.until(lambda: served.replica.running)
    served.until(served.is_idle)
    assert served.replica.cancelled == 1


def test_a_request_whose_body_cannot_be_understood_ends_even_so(serve: Serve) -> None:
    served = serve()
    with dial(served) as sock:
        sock.sendall(
            b"POST /echo HTTP/1.1\r\nx-request-disconnect-disabled: ?1\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
        )
        served.until(lambda: served.replica.running)
        sock.sendall(b"no size\r\n")
        assert b" 400 " in read_all(sock)
        served.until(served.is_idle)
    assert served.replica.cancelled == 1


def test_a_request_id_that_cannot_be_sent_back(serve: Serve) -> None:
    with dial(serve()) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nx-request-id: a\tb\r\nConnection: close\r\n\r\n")
        assert re.search(rf"x-request-id: {UUID}\r\n".encode(), read_all(sock))


def test_a_client_that_leaves_during_its_upload_cancels(serve: Serve) -> None:
    served = serve()
    with dial(served) as sock:
        sock.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        served.until(lambda: served.replica.running)
    served.until(served.is_idle)
    assert served.replica.cancelled == 1


@pytest.mark.parametrize("size", [0, 1, 65_536, 1 << 20, 30_000_000])
def test_bodies_of_a_length(serve: Serve, size: int) -> None:
    served = serve()
    body = (os.urandom(1 << 16) * (size // (1 << 16) + 1))[:size]
    assert ask(served, "/echo", "POST", body)[1] == b"%d %d" % (size, zlib.crc32(body))
    assert len(ask(served, f"/bytes/{size}")[1]) == size


def test_chunked_bodies(serve: Serve) -> None:
    served = serve()
    parts = [b"a" * n for n in (1, 10, 100_000, 3)]

    def body() -> Iterator[bytes]:
        yield from parts

    whole = b"".join(parts)
    expected = b"%d %d" % (len(whole), zlib.crc32(whole))
    assert ask(served, "/echo", "POST", body())[1] == expected
    assert ask(served, "/chunks/300")[1] == b"".join(b"chunk%5d" % i for i in range(300))


def test_parts_of_a_response_that_came_together_go_out_together(serve: Serve) -> None:
    served = serve()
    with dial(served) as sock:
        sock.sendall(b"GET /chunks/300 HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = read_until(sock, b"\r\n0\r\n\r\n")
    body, sizes = answer.partition(b"\r\n\r\n")[2], []
    while (size := int(body.partition(b"\r\n")[0], 16)) > 0:
        sizes.append(size)
        body = body.partition(b"\r\n")[2][size + 2 :]
    assert sum(sizes) == 300 * len(b"chunk    0")
    assert len(sizes) < 10


def test_expect_continue(serve: Serve) -> None:
    with dial(serve()) as sock:
        sock.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 100 ")
        sock.sendall(b"abc")
        read_until(sock, b"3 891568578")


def test_a_slow_reader_holds_the_replica_back(serve: Serve) -> None:
    served = serve()
    size = 50_000_000
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    sock.settimeout(20)
    with sock:
        sock.connect(("127.0.0.1", served.port))
        sock.sendall(b"GET /bytes/%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % size)
        served.until(lambda: served.replica.sent_bytes > 1 << 20)
        stalled = -1
        while stalled != served.replica.sent_bytes:  # until nothing moves any more
            stalled = served.replica.sent_bytes
            time.sleep(0.1)
        assert stalled < 12 << 20  # one window, and the buffers of two sockets
        assert len(read_all(sock).partition(b"\r\n\r\n")[2]) == size
    served.until(served.is_idle)


def test_a_deaf_replica_holds_the_client_back(serve: Serve) -> None:
    """An application that does not read its body keeps the client from sending, and may still answer."""
    served = serve()
    sent = 0
    with dial(served) as sock:
        sock.sendall(b"POST /hang HTTP/1.1\r\nHost: x\r\nContent-Length: 200000000\r\n\r\n")
        sock.settimeout(0.3)
        while select.select([], [sock], [], 0.3)[1]:
            sent += sock.send(bytes(1 << 16))
        assert sent < 30_000_000
    with dial(served) as sock:
        sock.sendall(b"POST /deaf HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n")
        assert read_until(sock, b"ok").startswith(b"HTTP/1.1 200 ")
        sock.sendall(bytes(2_000_000) + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        read_until(sock, b"ok")


def test_pipelined_requests_are_answered_in_order(serve: Serve) -> None:
    with dial(serve()) as sock:
        sock.sendall(
            b"GET /chunks/2 HTTP/1.1\r\nHost: x\r\n\r\n"
            b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        answer = read_all(sock)
    assert [answer.index(part) for part in (b"chunk    1", b"3 891568578", b"\r\n\r\nok")] == sorted(
        answer.index(part) for part in (b"chunk    1", b"3 891568578", b"\r\n\r\nok")
    )


def test_a_half_closed_connection_leaves_nothing(serve: Serve) -> None:
    served = serve()
    with dial(served) as sock:
        sock.sendall(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
        served.until(lambda: served.replica.running)
        sock.shutdown(socket.SHUT_WR)
        assert read_all(sock) == b""
    served.until(served.is_idle)
    assert not served.server._state.connections


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x00\x01\x02\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT a:80 HTTP/1.1\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nConnection: close\r\n\r\n", 404),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n", 431),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 400_000, 431),
        (b"GET / HTTP/1.0\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\nConnection: close\r\nA: " + b"a" * 60_000 + b"\r\n\r\n", 200),
    ],
)
def test_malformed_requests(serve: Serve, data: bytes, status: int) -> None:
    served = serve()
    with dial(served) as sock:
        sock.sendall(data)
        assert read_all(sock).startswith(b"HTTP/1.1 %d " % status)
    assert ask(served, "/")[0] == 200
    served.until(served.is_idle)


def test_rubbish_after_a_request_does_not_spoil_its_answer(serve: Serve) -> None:
    with dial(serve()) as sock:
        sock.sendall(b"GET /chunks/3 HTTP/1.1\r\nHost: x\r\n\r\n\x00\x00rubbish")
        answer = read_all(sock)
    assert answer.endswith(b"0\r\n\r\n")
    assert b"400" not in answer


def test_a_websocket_behind_a_request_that_runs_is_refused(serve: Serve) -> None:
    upgrade = (
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with dial(serve()) as sock:
        sock.sendall(b"GET /chunks/3 HTTP/1.1\r\nHost: x\r\n\r\n" + upgrade)
        answer = read_all(sock)
    assert answer.endswith(b"0\r\n\r\n")
    assert b"HTTP/1.1 101" not in answer


def test_a_head_must_arrive_in_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve()
    with dial(served) as silent, dial(served) as slow, dial(served) as kept:
        slow.sendall(b"GET / HTTP/1.1\r\nHo")
        kept.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        read_until(kept, b"ok")
        served.until(lambda: len(served.server._state.connections) == 3)
        monkeypatch.setattr(http_connection, "HEAD_TIMEOUT_S", -1.0)
        served.loop.call_soon_threadsafe(served.server._sweep)
        assert read_all(silent).startswith(b"HTTP/1.1 408 ")
        assert read_all(slow).startswith(b"HTTP/1.1 408 ")
        monkeypatch.undo()
        kept.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        read_until(kept, b"ok")


def test_idle_connections_end_after_keep_alive_timeout(serve: Serve) -> None:
    served = serve(keep_alive_timeout_s=0)
    with dial(served) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_all(sock).endswith(b"ok")


def test_a_thousand_idle_connections(serve: Serve) -> None:
    served = serve()
    socks = [dial(served) for _ in range(1000)]
    try:
        for sock in socks:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for sock in socks:
            read_until(sock, b"ok")
        assert len(served.server._state.connections) == 1000
        assert ask(served, "/")[0] == 200
        socks[-1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        read_until(socks[-1], b"ok")
    finally:
        for sock in socks:
            sock.close()
    served.until(lambda: not served.server._state.connections)


def test_drain_lets_requests_end(serve: Serve) -> None:
    served = serve()
    with dial(served) as idle, dial(served) as sock, dial(served) as late:
        idle.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        read_until(idle, b"ok")
        sock.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")
        late.sendall(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
        served.until(lambda: len(served.replica.running) == 2)
        left: list[int] = []
        drain = threading.Thread(target=lambda: left.append(served.run(served.server.drain(1.5))))
        drain.start()
        assert idle.recv(100) == b""
        with pytest.raises(ConnectionRefusedError):
            dial(served)
        sock.sendall(b"abc")
        answer = read_all(sock)
        assert answer.endswith(b"3 891568578")
        assert b"connection: close" in answer
        drain.join()
        assert left == [1]
        assert read_all(late).endswith(b"This node is being drained.")
    served.until(served.is_idle)


def test_drain_under_load_fails_no_request(serve: Serve) -> None:
    """Clients keep their connections; whoever asks the draining ingress is told to connect again, to the other one."""
    one = serve()
    two = serve(port=one.port)
    stop = threading.Event()
    failed: list[BaseException] = []
    done = [0] * 6

    def client(own: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=20)
        try:
            while not stop.is_set():
                connection.request("POST", "/echo", b"abc")
                assert connection.getresponse().read() == b"3 891568578"
                done[own] += 1
        except BaseException as error:
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=client, args=(own,)) for own in range(len(done))]
    for thread in threads:
        thread.start()
    try:
        one.until(lambda: min(done) > 5 or failed)
        assert one.run(one.server.drain(20)) == 0
        before = sum(done)
        two.until(lambda: sum(done) > before + 100 or failed)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failed == []


def test_before_the_first_routes_it_is_not_healthy(serve: Serve) -> None:
    served = serve()
    served.table.was_filled = False
    assert ask(served, "/-/healthz")[:2] == (503, b"Route table is not populated yet.")
    served.table.was_filled = True
    served.app.draining = True
    assert ask(served, "/-/healthz")[:2] == (503, b"This node is being drained.")


def test_two_ingresses_share_a_port(serve: Serve) -> None:
    one = serve()
    two = serve(port=one.port)
    for _ in range(50):
        assert ask(one, "/")[0] == 200
    one.run(one.server.drain(1))
    for _ in range(10):
        assert ask(two, "/")[0] == 200


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"Failed to bind to address '127.0.0.1:{port}'"):
            bind("127.0.0.1", port)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls(serve: Serve, tmp_path: Any) -> None:
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    make = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {cert} -days 1 -subj /CN=localhost"
    subprocess.run(
        [*make.split(), "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True
    )
    served = serve(ssl_keyfile=key, ssl_certfile=cert)
    trust = ssl.create_default_context(cafile=cert)
    connection = http.client.HTTPSConnection("localhost", served.port, timeout=20, context=trust)
    connection.request("GET", "/inspect")
    assert json.loads(connection.getresponse().read())["scheme"] == "https"
    connection.close()
    with dial(served) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert not read_all(sock).startswith(b"HTTP")
    served.until(lambda: not served.server._state.connections)
