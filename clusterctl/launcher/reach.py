"""The way to the API of a cluster's head, which listens on the loopback of its machine only."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from urllib.parse import urlsplit

from autoscaler.provider import Machine, MachineState, ProviderError
from clusterctl.api_client import ApiClient
from clusterctl.errors import Unreachable
from clusterctl.home import ClusterRecord, Home
from clusterctl.providers import OperatorProvider

_NETWORK_PATIENCE_S = 60.0
"""A network in between may fail for a while."""
_forwards = ExitStack()
_urls: dict[tuple[str, str, str], str] = {}
atexit.register(_forwards.close)


def api(home: Home, record: ClusterRecord, provider: OperatorProvider) -> ApiClient:
    """The API of a cluster that was brought up, through a forwarded port where the machine's is not ours.

    Raises:
        Unreachable: the head's machine is not the cluster's any more.
    """
    if not provider.capabilities.forward_ports:
        return ApiClient(record.api_url, home.secret(record.name), record.name)
    url = _local_url(record, provider)
    return ApiClient(url, home.secret(record.name), record.name, patience_s=_NETWORK_PATIENCE_S)


def _local_url(record: ClusterRecord, provider: OperatorProvider) -> str:
    head = record.head or Machine("", MachineState.GONE, "", {})
    key = (head.id, head.address_for_us, record.api_url)
    if key not in _urls:
        try:
            shell = provider.shell(head)
        except ProviderError as error:
            raise Unreachable(
                f"the head's machine of cluster '{record.name}' is gone: {error}",
                "`clusterctl up FILE` starts the cluster over, `clusterctl down` ends what is left.",
            ) from error
        port = _forwards.enter_context(shell.forward(urlsplit(record.api_url).port or 80))
        _urls[key] = f"http://127.0.0.1:{port}"
    return _urls[key]
