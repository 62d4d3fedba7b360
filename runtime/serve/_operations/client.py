"""Talks to what is served on a cluster: over the REST API of its head, or, where a cluster has no head, as a program of
the cluster."""

from __future__ import annotations

import copy
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import runtime
from runtime.job_submission import JobSubmissionClient, endpoint
from runtime.serve._core.published import NAMESPACE
from runtime.serve._operations.rest import APPLICATIONS, Answer, answer

TIMEOUT_S = 90.0


class ServeError(Exception):
    """A request was refused. The message says why."""


Ask = Callable[[str, str, Any], Answer]


class ServeClient:
    """Deploys, shows and ends what is served.

    Args:
        address: of the head's API, of the cluster, or None for the one in use; see `endpoint.find`.

    Raises:
        ConnectionError: there is no such cluster.
    """

    def __init__(self, address: str | None = None) -> None:
        self._address = address
        self._ask = _over_http(address) or _in_cluster(address)

    def details(self) -> dict[str, Any]:
        """Everything that is served, in the shape of `ServeInstanceDetails`."""
        found = self._request("GET")
        details: dict[str, Any] = json.loads(found.body) if isinstance(found.body, str) else found.body
        return details

    def deploy(self, config: dict[str, Any]) -> None:
        """Deploys a configuration; returns once it is accepted."""
        self._request("PUT", config)

    def upload(self, env: dict[str, Any]) -> dict[str, Any]:
        """A `runtime_env` whose local folders are on the cluster: it names their packages.

        Raises:
            ConnectionError: the cluster has no head that takes packages.
            ValueError: it is no runtime_env.
        """
        return JobSubmissionClient(self._address)._upload_files(copy.deepcopy(env))

    def shutdown(self) -> None:
        """Ends everything that is served."""
        self._request("DELETE")

    def _request(self, method: str, value: Any = None) -> Answer:
        found = self._ask(method, APPLICATIONS, value)
        if found.status != 200:
            raise ServeError(found.text)
        return found


def _over_http(address: str | None) -> Ask | None:
    try:
        head = endpoint.find(address)
    except ConnectionError:
        if address is not None and address.startswith(("http://", "https://")):
            raise
        return None

    def ask(method: str, path: str, value: Any) -> Answer:
        body = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(head.url + path, body, method=method)
        request.add_header("Content-Type", "application/json")
        if head.secret:
            request.add_header("X-Ray-Authorization", f"Bearer {head.secret}")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as found:
                return Answer(200, found.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read().decode(errors="replace"))
        except OSError as error:
            raise ConnectionError(f"The head at {head.url} does not answer: {error}") from error

    return ask


def _in_cluster(address: str | None) -> Ask:
    if not runtime.is_initialized():
        runtime.init(address=address or "auto", namespace=NAMESPACE, log_to_driver=False)

    def ask(method: str, path: str, value: Any) -> Answer:
        return answer(method, path, {}, b"" if value is None else json.dumps(value).encode())

    return ask
