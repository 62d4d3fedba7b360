"""The pretended platform on a socket, and hosts for its instances."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from tests.testbed.cloud_hosts import CloudHosts
from tests.testbed.hosts import OPERATOR

from . import billing
from .billing import Billing
from .compute import Compute

_PREFIX = "/compute/v1/"


class Cloud:
    """A context manager.

    Args:
        with_hosts: each running instance is a real host; use it from `inside`.

    Attributes:
        compute: what there is.
        billing: the catalogue of prices.
        endpoint: where its API answers.
    """

    def __init__(self, with_hosts: bool = False) -> None:
        self.compute = Compute()
        self.billing = Billing()
        self.hosts = CloudHosts(self.compute.wanted) if with_hosts else None
        with self.inside():
            address = OPERATOR if with_hosts else "127.0.0.1"
            self._server = _Server((address, 0), self.compute, self.billing)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="compute API")
        self._thread.start()
        self.endpoint = f"http://{address}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """While it lasts, the calling thread is where the hosts and the API are."""
        with self.hosts.inside() if self.hosts else contextlib.nullcontext():
            yield

    def close(self) -> None:
        """Ends the API and all hosts."""
        self._server.shutdown()
        self._thread.join()
        self._server.end()
        if self.hosts:
            self.hosts.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], compute: Compute, billing: Billing) -> None:
        self.compute = compute
        self.billing = billing
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client may be killed in the middle
            super().handle_error(request, client_address)

    def end(self) -> None:
        """Closes what is still open."""
        self.server_close()
        for request in [*self._open]:
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _answer(self) -> None:
        target = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        query = dict(parse_qsl(target.query))
        if target.path == billing.PATH:
            self._send(*self.server.billing.call(query))
            return
        if not target.path.startswith(_PREFIX):
            self._send(404, {"error": {"code": 404, "message": f"no such path: {target.path}"}})
            return
        try:
            status, answer = self.server.compute.call(
                self.command, target.path.removeprefix(_PREFIX), query, body
            )
        except ConnectionAbortedError:
            self.close_connection = True
            return
        self._send(status, answer)

    do_GET = do_POST = do_DELETE = do_PATCH = _answer

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass
