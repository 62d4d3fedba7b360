"""What the ingress itself answers: the status and text of each failure, for HTTP. Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from runtime.serve._http_failures import told_of

Headers = list[tuple[bytes, bytes]]

HEALTHY = "success"
DRAINING = "This node is being drained."

PLAIN = (b"content-type", b"text/plain; charset=utf-8")
JSON = (b"content-type", b"application/json")


class Answer(NamedTuple):
    """A complete response.

    Attributes:
        headers: its length is among them.
    """

    status: int
    headers: Headers
    body: bytes


def text(status: int, message: str, headers: Headers | None = None) -> Answer:
    """A plain text."""
    body = message.encode()
    return Answer(status, [PLAIN, (b"content-length", b"%d" % len(body)), *(headers or [])], body)


def json(value: object) -> Answer:
    """A JSON document with status 200."""
    body = msgspec.json.encode(value)
    return Answer(200, [JSON, (b"content-length", b"%d" % len(body))], body)


def not_found(path: str) -> Answer:
    """No route has this path."""
    return text(404, f"Path '{path}' not found. Ping http://.../-/routes for available routes.")


def timed_out(request_id: str, timeout_s: float) -> Answer:
    """The request exceeded `request_timeout_s`."""
    return text(408, f"Request {request_id} timed out after {timeout_s}s.")


def for_error(error: BaseException) -> Answer:
    """Of an exception that ended a request before its response began; see `told_of`."""
    return text(*told_of(error))
