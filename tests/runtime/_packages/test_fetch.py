"""Who gets to see the bearer token: real servers, one of which redirects to the other."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime._packages.fetch import FetchError, fetch


class Server:
    """Answers every request: with 401 without a token where it wants one, else with a redirect or its content."""

    def __init__(self, redirect: str = "", wants_token: bool = False) -> None:
        self.tokens: list[str | None] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.tokens.append(self.headers.get("Authorization"))
                if wants_token and outer.tokens[-1] is None:
                    self.send_response(401)
                elif redirect:
                    self.send_response(302)
                    self.send_header("Location", redirect)
                else:
                    self.send_response(200)
                self.end_headers()
                self.wfile.write(b"content")

            def log_message(self, *_: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("", 0), Handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def url(self, host: str) -> str:
        return f"http://{host}:{self._server.server_port}/x.zip"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_RUNTIME_ENV_BEARER_TOKEN", "hush")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def target() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def test_the_token_does_not_follow_a_redirect(target: Server, tmp_path: Path) -> None:
    first = Server(redirect=target.url("localhost"))
    try:
        fetch(first.url("127.0.0.1"), str(tmp_path / "x"))
    finally:
        first.close()
    assert (tmp_path / "x").read_text() == "content"
    assert first.tokens == ["Bearer hush"]
    assert target.tokens == [None]


def test_the_token_is_not_sent_unencrypted_over_a_network(target: Server, tmp_path: Path) -> None:
    fetch(
        target.url("0.0.0.0"), str(tmp_path / "x")
    )  # an address that leads here, but is not of the loopback
    assert target.tokens == [None]


def test_a_refusal_for_want_of_the_token_says_why(tmp_path: Path) -> None:
    server = Server(wants_token=True)
    try:
        with pytest.raises(FetchError, match=r"401.*RAY_RUNTIME_ENV_BEARER_TOKEN.*only over https"):
            fetch(server.url("0.0.0.0"), str(tmp_path / "x"))
        fetch(server.url("localhost"), str(tmp_path / "x"))
    finally:
        server.close()
