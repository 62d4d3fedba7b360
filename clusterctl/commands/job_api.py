"""Which head a `clusterctl job` command asks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from clusterctl import settings
from runtime._system import settings as engine

if TYPE_CHECKING:
    from clusterctl.api_client import ApiClient

Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="The http:// address of a job API, or the HOST:PORT of a control store. RAY_API_SERVER_ADDRESS and "
        "RAY_ADDRESS come before it.",
    ),
]
Headers = Annotated[
    str | None,
    typer.Option(metavar="JSON", help="HTTP headers for proxies. Default: RAY_JOB_HEADERS."),
]


def job_api(cluster: str | None, address: str | None, headers: str | None) -> ApiClient:
    """The API of `--cluster`; else of the address that is named; else of the current cluster; else of a head that
    runs on this machine.

    Raises:
        UsageProblem: the options exclude each other, or the headers are wrong.
        NotFound: no such cluster is known here.
    """
    from clusterctl.errors import UsageProblem

    if cluster is not None and address is not None:
        raise UsageProblem("--cluster and --address exclude each other")
    given = _headers(headers)
    named = engine.API_SERVER_ADDRESS.get() or engine.RAY_ADDRESS.get() or address or ""
    api = _api(cluster, named)
    api.headers = given
    return api


def _api(cluster: str | None, address: str) -> ApiClient:
    from clusterctl.home import Home

    from .opened_cluster import open_cluster

    here = address or engine.CLUSTER_ADDRESS.get()
    if cluster is not None or (not here and Home.find().names()):
        return open_cluster(cluster).api()
    return _at(here)


def _at(address: str) -> ApiClient:
    from clusterctl.api_client import ApiClient
    from clusterctl.errors import NotFound
    from runtime.job_submission import endpoint

    try:
        found = endpoint.find(address or None)
    except ConnectionError as error:
        if not address:
            from .opened_cluster import open_cluster

            open_cluster(None)  # says which clusters there are
        raise NotFound(str(error)) from error
    return ApiClient(found.url, found.secret, address or "on this machine")


def _headers(text: str | None) -> dict[str, str]:
    from clusterctl.errors import UsageProblem

    text = text or settings.JOB_HEADERS.get() or "{}"
    try:
        given = json.loads(text)
        if not isinstance(given, dict):
            raise ValueError("no mapping")
    except ValueError as error:
        raise UsageProblem(
            f"--headers and RAY_JOB_HEADERS take JSON, and {text!r} is none: {error}",
            'Give {"NAME": "VALUE"}.',
        ) from None
    return {str(name): str(value) for name, value in given.items()}
