"""What the launcher knows of SSH hosts."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.spec.definition import ClusterSpec

from ..protocol import Entry, OperatorProvider, Seat
from . import document
from .config import SshNodeConfig


def _make(spec: ClusterSpec, cluster_id: str, settings: Mapping[str, str], seat: Seat) -> OperatorProvider:
    from .provider import SshMachines

    return SshMachines(spec, cluster_id, settings, seat)


ENTRY = Entry(
    make=_make,
    extra="ssh",
    modules=("paramiko",),
    node_config=SshNodeConfig,
    has_markets=False,
    implies_node_types=True,
    complete=document.complete,
    check=document.check,
)
