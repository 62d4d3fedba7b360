"""The secret that a program proves to the head: given by the environment, or known on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from runtime._node import registry
from runtime._session.current_cluster import choose
from runtime._system import settings


def secret_for(address: str) -> bytes:
    """The secret of the cluster whose remote driver server is at `address` (host:port): RAY_AUTH_TOKEN, what
    RAY_AUTH_TOKEN_PATH names, that of a head on this machine, or of the operator's current cluster.

    Raises:
        ConnectionError: none is known.
    """
    token = settings.AUTH_TOKEN.get()
    if token:
        return token.strip().encode()
    path = settings.AUTH_TOKEN_PATH.get()
    try:
        if path:
            return Path(path).expanduser().read_bytes().strip()
        for known in _known(address):
            return known.read_bytes().strip()
    except OSError as error:
        raise ConnectionError(
            f"Failed to connect to ray://{address}: cannot read the secret: {error}"
        ) from None
    raise ConnectionError(
        f"Failed to connect to ray://{address}: the secret of its cluster is not known here. `clusterctl connect` sets "
        "what is needed; or put it into RAY_AUTH_TOKEN, or its file into RAY_AUTH_TOKEN_PATH (on the head's machine, "
        "`clusterctl start --head` says where it is)."
    )


def _known(address: str) -> Iterator[Path]:
    port = address.rpartition(":")[2]
    for node in registry.records():
        if node.is_head and not node.local:
            try:
                record = json.loads(Path(node.session_dir, "daemon.json").read_text())
                if record["client_address"].rpartition(":")[2] == port:
                    yield Path(record["secret_file"])
            except (OSError, ValueError, KeyError):
                continue
    home = Path(settings.OPERATOR_HOME.get() or Path.home() / ".clusterctl")
    names = [path.parent.name for path in sorted(home.glob("clusters/*/cluster.json"))]
    chosen = choose(home, names).name
    if chosen:
        yield home / "clusters" / chosen / "secret"
