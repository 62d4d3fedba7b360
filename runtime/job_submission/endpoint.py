"""Finds the job API of a head, and its secret."""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from runtime._core.addresses import canonical
from runtime._core.head_api import KEY, NAMESPACE
from runtime._node import registry
from runtime._process.core_worker import current_or_none
from runtime._session.current_cluster import choose
from runtime._system import settings
from runtime._wire.messages.control import KvGet, KvValue


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The API of a head. Without `secret` the head only answers health checks.

    Attributes:
        behind: the cluster through whose head machine `url` must be tunnelled; "": none.
    """

    url: str
    secret: str
    control_address: str = ""
    behind: str = ""


def find(address: str | None) -> Endpoint:
    """The API for an address.

    Args:
        address: `http://host:port` of the API (of a known cluster also without `http://`), `host:port` of the
            cluster's control store, "auto", or None: the cluster that this program is connected to, else the one of a
            node on this machine, else the operator's current one. RAY_API_SERVER_ADDRESS and RAY_ADDRESS take
            precedence, as in Ray.

    Raises:
        ConnectionError: no known cluster has this address.
    """
    wanted = settings.API_SERVER_ADDRESS.get() or settings.RAY_ADDRESS.get() or address
    wanted = (wanted or "auto").removeprefix("ray://").rstrip("/")
    if wanted == "auto":
        wanted = settings.CLUSTER_ADDRESS.get() or "auto"
    place = canonical(wanted)
    for known in _known(wanted == "auto"):
        names = (known.url, known.url.removeprefix("http://"), known.control_address)
        if wanted == "auto" or place in map(canonical, names):
            return replace(known, url=_tunnel(known.behind)) if known.behind else known
    if wanted.startswith(("http://", "https://")):
        return Endpoint(wanted, _token())
    raise ConnectionError(
        f"Failed to connect to Ray at address: {address or 'auto'}. No cluster with a head is known here: bring one up "
        "with `clusterctl up` or `clusterctl start --head`, or give the http:// address of its API and its secret "
        "(RAY_AUTH_TOKEN). `init()` starts a head only with include_dashboard=True."
    )


def _token() -> str:
    path = settings.AUTH_TOKEN_PATH.get()
    return settings.AUTH_TOKEN.get() or (Path(path).read_text().strip() if path else "")


def _known(is_any: bool) -> Iterator[Endpoint]:
    """The clusters that are reachable from here, the likeliest first.

    Args:
        is_any: no address was given, so only the current one of the operator's clusters counts.
    """
    core = current_or_none()
    if core is not None:
        reply = core.call_agent(KvGet(NAMESPACE, KEY))
        if isinstance(reply, KvValue) and reply.value is not None:
            yield Endpoint(reply.value.decode(), core.session.secret.decode())
    heads = [node for node in registry.records() if node.is_head and not node.local]
    for node in heads:
        yield from _read(Path(node.session_dir, "daemon.json"), None)
    home = Path(settings.OPERATOR_HOME.get() or Path.home() / ".clusterctl")
    records = {path.parent.name: path for path in sorted(home.glob("clusters/*/cluster.json"))}
    chosen = choose(home, list(records)).name if is_any else ""
    for name, record in records.items():
        if is_any and name != chosen:
            continue
        yield from _read(record, record.parent / "secret")


def _read(record: Path, secret_file: Path | None) -> Iterator[Endpoint]:
    """The endpoint in a record of the head or the operator; nothing if the record is incomplete."""
    try:
        told = json.loads(record.read_text())
        secret = Path(secret_file or told["secret_file"]).read_text().strip()
        if told["api_url"]:
            behind = told["name"] if told.get("is_behind") else ""
            yield Endpoint(told["api_url"], secret, told["control_address"], behind)
    except (OSError, ValueError, KeyError):
        return


_tunnels: dict[str, tuple[subprocess.Popen[str], str]] = {}


def _tunnel(cluster: str) -> str:
    """Opens a tunnel to a cluster's API for the life of this program, with `clusterctl`, and returns its local URL.

    Raises:
        ConnectionError: the tunnel could not be opened.
    """
    if cluster in _tunnels and _tunnels[cluster][0].poll() is None:
        return _tunnels[cluster][1]
    process = subprocess.Popen(
        [sys.executable, "-m", "clusterctl", "dashboard", cluster, "--until-eof"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    if not url:
        _, words = process.communicate()
        raise ConnectionError(
            f"Failed to connect to Ray: cluster '{cluster}' cannot be reached: {words.strip()}"
        )
    _tunnels[cluster] = process, url
    atexit.register(_close, process)
    return url


def _close(process: subprocess.Popen[str]) -> None:
    process.communicate()  # closes its input, and waits
