"""`ray._private.state`: the cluster's state by Ray's older names, as dicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime._api.cluster_view import available_resources, cluster_resources, connected, nodes
from runtime._api.timeline import timeline
from runtime._core import ids, resources
from runtime._wire.messages.base import NodeInfo
from runtime._wire.messages.control import ActorInfo, GetNodes, JobInfo, ListActors, ListJobs

__all__ = [
    "actors",
    "available_resources",
    "available_resources_per_node",
    "cluster_resources",
    "current_node_id",
    "jobs",
    "node_ids",
    "nodes",
    "timeline",
    "total_resources_per_node",
]
_NODE_PREFIX = "node:"


def actors(
    actor_id: str | None = None, job_id: ids.JobID | None = None, actor_state_name: str | None = None
) -> dict[str, Any]:
    """The actors by id in hex; with `actor_id` that one alone, {} if there is none.

    Args:
        job_id: only those of this job.
        actor_state_name: only those in this state.
    """
    infos: list[ActorInfo] = connected().ask(ListActors()).actors
    found = {
        info.actor_id.hex(): _actor(info)
        for info in infos
        if (job_id is None or info.spec.job_id == job_id.binary())
        and (actor_state_name is None or info.state == actor_state_name)
    }
    return found if actor_id is None else found.get(actor_id, {})


def _actor(info: ActorInfo) -> dict[str, Any]:
    return {
        "ActorID": info.actor_id.hex(),
        "ActorClassName": info.spec.class_name,
        "IsDetached": info.spec.detached,
        "Name": info.spec.name,
        "JobID": info.spec.job_id.hex(),
        "Address": {
            "IPAddress": info.host,
            "Port": info.address.port if info.address is not None else 0,
            "NodeID": info.node_id.hex(),
        },
        "State": info.state,
        "NumRestarts": info.restarts,
        "DeathCause": info.death_reason,
        "Pid": info.pid,
    }


def jobs() -> list[dict[str, Any]]:
    """The drivers, those that have ended included."""
    infos: list[JobInfo] = connected().ask(ListJobs()).jobs
    return [
        {
            "JobID": info.job_id.hex(),
            "DriverIPAddress": info.host,
            "DriverPid": info.pid,
            "StartTime": int(info.started_s * 1000),
            "EndTime": int(info.ended_s * 1000),
            "IsDead": info.state != "RUNNING",
            "Entrypoint": info.entrypoint,
        }
        for info in infos
    ]


def node_ids() -> list[str]:
    """The live nodes' own resources, `node:<address>`, which tasks may ask for."""
    return [f"{_NODE_PREFIX}{node.host}" for node in _live_nodes()]


def current_node_id() -> str:
    """This node's own resource, `node:<address>`."""
    return f"{_NODE_PREFIX}{connected().session.node_host}"


def total_resources_per_node() -> dict[str, dict[str, float]]:
    """The resources of each live node, by its id in hex."""
    return {node.node_id.hex(): resources.to_floats(node.total) for node in _live_nodes()}


def available_resources_per_node() -> dict[str, dict[str, float]]:
    """What nothing holds at the moment of each live node, by its id in hex."""
    return {node.node_id.hex(): resources.to_floats(_positive(node.available)) for node in _live_nodes()}


def _positive(units: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in units.items() if amount > 0}


def _live_nodes() -> list[NodeInfo]:
    infos: list[NodeInfo] = connected().ask(GetNodes()).nodes
    return [info for info in infos if info.state != "DEAD"]
