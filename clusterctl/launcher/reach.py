"""The way to the API of a cluster's head, which listens on the loopback of its machine only."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from urllib.parse import urlsplit

from autoscaler.provider import Machine, MachineState, ProviderError
from clusterctl.api_client import ApiClient, TunnelLog
from clusterctl.errors import Unreachable
from clusterctl.home import ClusterRecord, Home
from clusterctl.providers.protocol import OperatorProvider

_NETWORK_PATIENCE_S = 60.0
"""A network in between may fail for a while."""
_forwards = ExitStack()
_ways: dict[tuple[str, str, str], tuple[str, TunnelLog]] = {}
atexit.register(_forwards.close)


def api(home: Home, record: ClusterRecord, provider: OperatorProvider) -> ApiClient:
    """The API of a cluster that was brought up, through a forwarded port where the machine's is not ours.

    Raises:
        Unreachable: the head's machine is not the cluster's any more.
    """
    if not provider.capabilities.forward_ports:
        return ApiClient(record.api_url, home.secret(record.name), record.name)
    url, tunnel = _way(record, provider)
    secret = home.secret(record.name)
    return ApiClient(url, secret, record.name, patience_s=_NETWORK_PATIENCE_S, tunnel=tunnel)


def _way(record: ClusterRecord, provider: OperatorProvider) -> tuple[str, TunnelLog]:
    """The local URL that leads to the head's API, and what becomes of its tunnels."""
    head = record.head or Machine("", MachineState.GONE, "", {})
    key = (head.id, head.address_for_us, record.api_url)
    if key not in _ways:
        try:
            shell = provider.shell(head)
        except ProviderError as error:
            raise Unreachable(
                f"the head's machine of cluster '{record.name}' is gone: {error}",
                "`clusterctl up FILE` starts the cluster over, `clusterctl down` ends what is left.",
            ) from error
        tunnel = TunnelLog()
        port = _forwards.enter_context(shell.forward(urlsplit(record.api_url).port or 80, tunnel.note))
        _ways[key] = f"http://127.0.0.1:{port}", tunnel
    return _ways[key]
