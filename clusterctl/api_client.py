"""Calls of the head's HTTP API, with every failure translated into what the reader should do."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from autoscaler.provider import PortClosed, ShellError
from clusterctl.errors import CliError, Denied, NotFound, TimedOut, Unreachable, UsageProblem
from runtime._core.head_api import with_secret

_ATTEMPT_GAP_S = 0.2
_RESTART_S = 5.0
"""How long a head may be restarting: its machine answers, and nobody listens at its port."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """What the body says.

        Raises:
            NotFound: it is no JSON.
        """
        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            raise NotFound(
                "what answers at the head's port is not the head of a cluster",
                "Another program may have taken the port: `clusterctl doctor` looks for what is wrong.",
            ) from None

    def mapping(self) -> Mapping[str, Any]:
        """The JSON object that a successful answer has; empty: it has none."""
        try:
            said = self.json()
        except NotFound:
            return {}
        return said if self.status == 200 and isinstance(said, dict) else {}

    @property
    def complaint(self) -> str:
        """What a head says that is wrong; "": nothing, or it is no head that answers."""
        try:
            said = json.loads(self.body)
        except ValueError:
            return ""
        return str(said.get("error", "")) if isinstance(said, dict) else ""


@dataclass(slots=True)
class TunnelLog:
    """Why the latest connection got no tunnel to the head's machine. None: it got one, or needs none."""

    failure: ShellError | None = None

    def note(self, failure: ShellError | None) -> None:
        self.failure = failure


class ApiClient:
    """One cluster's API. Keeps a connection; belongs to one thread.

    Attributes:
        patience_s: how long whoever follows something goes on when the head does not answer.
        headers: sent with every request, beside the secret: for proxies on the way.

    Args:
        tunnel: where the URL is the end of a tunnel: what became of the tunnels of its connections.
    """

    def __init__(
        self,
        url: str,
        secret: str,
        cluster: str,
        timeout_s: float = 5.0,
        patience_s: float = 5.0,
        tunnel: TunnelLog | None = None,
    ) -> None:
        self._tunnel = tunnel or TunnelLog()
        self.patience_s = patience_s
        self.headers: Mapping[str, str] = {}
        self._secret = secret
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._url = url
        parts = urlsplit(url)
        self._is_tls = parts.scheme == "https"
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or (443 if self._is_tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str, timeout_s: float | None = None, **query: object) -> Any:
        """The JSON of a GET."""
        return self.request("GET", path, query=query, timeout_s=timeout_s).json()

    def post(self, path: str, value: object = None) -> Any:
        """The JSON of a POST, which is not repeated."""
        return self.request("POST", path, body=json.dumps(value).encode()).json()

    def delete(self, path: str) -> Any:
        return self.request("DELETE", path).json()

    def put(self, path: str, body: bytes, timeout_s: float = 120.0) -> Any:
        return self.request("PUT", path, body=body, timeout_s=timeout_s).json()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: bytes | None = None,
        timeout_s: float | None = None,
        patience_s: float = 0.0,
    ) -> Answer:
        """Calls the API.

        Args:
            timeout_s: for each wait on the socket.
            patience_s: how long to go on trying when the head does not answer.

        Raises:
            Unreachable, TimedOut, Denied, NotFound, UsageProblem, CliError: as the head or the network says.
        """
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        answer = self._persistently(method, target, body, timeout_s or self._timeout_s, patience_s)
        if answer.status >= 400:
            raise self._refusal(answer)
        return answer

    def look(self, path: str, timeout_s: float) -> Answer:
        """What a GET is answered, whatever that is, for whoever asks who is there.

        Raises:
            Unreachable, TimedOut: nothing.
        """
        return self._persistently("GET", quote(path), None, timeout_s, 0.0)

    def _persistently(
        self, method: str, target: str, body: bytes | None, timeout_s: float, patience_s: float
    ) -> Answer:
        deadline = time.monotonic() + patience_s
        closed_s: float | None = None
        while True:
            try:
                return self._once(method, target, body, timeout_s)
            except TimeoutError as error:
                self.close()
                problem: CliError = TimedOut(
                    f"the head of cluster '{self._cluster}' does not answer in time ({self._url})",
                    "It may be busy: try again. `clusterctl logs` shows what it does.",
                )
                cause: Exception = error
            except (OSError, http.client.HTTPException) as error:
                self.close()
                problem = self.unreachable()
                cause = error
                if isinstance(self._tunnel.failure, PortClosed):  # the network is not what failed
                    closed_s = time.monotonic() if closed_s is None else closed_s
                    deadline = min(deadline, closed_s + _RESTART_S)
            if time.monotonic() + _ATTEMPT_GAP_S >= deadline:
                raise problem from cause
            time.sleep(_ATTEMPT_GAP_S)

    def unreachable(self) -> Unreachable:
        """The error for a head that is not there, or to which there is no way."""
        failure = self._tunnel.failure
        if failure is not None and not isinstance(failure, PortClosed):
            return Unreachable(
                f"there is no way to the head of cluster '{self._cluster}': {failure}",
                "What runs there may run on. `clusterctl doctor` looks for what is wrong.",
            )
        return Unreachable(
            f"the head of cluster '{self._cluster}' does not answer ({self._url})",
            "It may have died: `clusterctl up FILE` starts the cluster over, `clusterctl down` ends it.",
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _once(self, method: str, target: str, body: bytes | None, timeout_s: float) -> Answer:
        fresh = self._connection is None
        if self._connection is None:
            make = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
            self._connection = make(self._host, self._port, timeout=timeout_s)
            self._connection.connect()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._connection
        connection.sock.settimeout(timeout_s)
        headers = with_secret(self._secret, self.headers)
        if body is not None:
            headers["Content-Type"] = "application/octet-stream" if method == "PUT" else "application/json"
        try:
            connection.request(method, self._prefix + target, body, headers)
            response = connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if fresh or method == "POST":
                raise
            self.close()  # the head closed a connection that was idle: that is no failure
            return self._once(method, target, body, timeout_s)
        data = response.read()
        names = {name.lower(): value for name, value in response.getheaders()}
        if response.will_close:
            self.close()
        return Answer(response.status, names, data)

    def _refusal(self, answer: Answer) -> CliError:
        message, hint = answer.complaint, ""
        if not message:
            message = f"the head of cluster '{self._cluster}' answered with HTTP status {answer.status} ({self._url})"
            hint = (
                "If that is another program at the head's port: `clusterctl doctor` looks for what is wrong."
            )
        if answer.status in (401, 403) and not self._secret:
            return Denied(
                f"the head of cluster '{self._cluster}' asks for its secret ({self._url})",
                "Set RAY_AUTH_TOKEN to it, or RAY_AUTH_TOKEN_PATH to a file that holds it.",
            )
        if answer.status in (401, 403):
            return Denied(
                f"the head of cluster '{self._cluster}' refuses our secret",
                "It may be another cluster by now: run `clusterctl down` and `clusterctl up FILE`.",
            )
        if answer.status == 404:
            return NotFound(message, hint)
        if answer.status in (400, 413, 422):
            return UsageProblem(message, hint)
        return CliError(message, hint)
