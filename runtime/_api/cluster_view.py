"""The cluster as a connected program sees it: nodes and resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runtime import exceptions
from runtime._core import resources as resource_units
from runtime._core.bundles import is_group_resource
from runtime._process.core_worker import Core, current_or_none
from runtime._wire.messages.base import NodeInfo
from runtime._wire.messages.control import GetNodes, Nodes

_STORE = "object_store_memory"


def connected() -> Core:
    """The core of this process. Unlike `core_worker.current`, it does not connect.

    Raises:
        RaySystemError: this process is not connected.
    """
    core = current_or_none()
    if core is None:
        raise exceptions.RaySystemError(
            "Ray has not been started yet: call init() before asking for its state."
        )
    return core


def _own_resources(node: NodeInfo) -> dict[str, float]:
    """The node's resources without the names that placement groups add."""
    own = {name: units for name, units in node.total.items() if not is_group_resource(name)}
    return resource_units.to_floats(own)


def _nodes() -> list[NodeInfo]:
    reply = connected().ask(GetNodes())
    assert isinstance(reply, Nodes)
    return reply.nodes


def nodes() -> list[dict[str, Any]]:
    """Every node of the cluster, dead ones included."""
    return [
        {
            "NodeID": node.node_id.hex(),
            "Alive": node.state != "DEAD",
            "NodeManagerAddress": node.host,
            "NodeManagerHostname": node.host_name,
            "NodeManagerPort": int(node.address.rpartition(":")[2] or 0),
            "ObjectManagerPort": int(node.address.rpartition(":")[2] or 0),
            "ObjectStoreSocketName": node.store_path,
            "RayletSocketName": node.unix_path,
            "MetricsExportPort": node.metrics_port,
            "MetricsAgentPort": 0,
            "DashboardAgentListenPort": 0,
            "NodeName": node.name or node.host,
            "RuntimeEnvAgentPort": 0,
            "DeathReason": _death_reason(node),
            "DeathReasonMessage": node.death_reason,
            "alive": node.state != "DEAD",
            "Resources": _own_resources(node) if node.state != "DEAD" else {},
            "Labels": dict(node.labels),
        }
        for node in _nodes()
    ]


def _death_reason(node: NodeInfo) -> int:
    """Ray's number: 0 unspecified, 1 expected, 2 unexpected."""
    return 0 if node.state != "DEAD" else 1 if node.left else 2


def _sum(pick: Callable[[NodeInfo], Mapping[str, int]]) -> dict[str, float]:
    total: dict[str, int] = {}
    for node in _nodes():
        if node.state != "DEAD":
            resource_units.add(total, pick(node))
    return resource_units.to_floats(total)


def cluster_resources() -> dict[str, float]:
    """The resources of all live nodes."""
    return _sum(lambda node: node.total)


def available_resources() -> dict[str, float]:
    """The free resources of all live nodes."""
    # Tasks that woke up while others had their CPUs make it negative for a while.
    return _sum(_free)


def _free(node: NodeInfo) -> dict[str, int]:
    free = {name: amount for name, amount in node.available.items() if amount > 0}
    # Nothing asks for it: what objects take is measured.
    store = free.get(_STORE, 0) - node.store_used_bytes * resource_units.UNIT
    return {**free, _STORE: max(0, store)}
