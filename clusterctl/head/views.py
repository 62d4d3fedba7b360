"""What the API shows of nodes, demand and jobs. Pure: messages in, JSON values out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from autoscaler.demand import gang_of
from clusterctl.jobs.records import JobRecord, JobStatus
from runtime._core.resources import describe, to_floats
from runtime._wire.messages.base import Demand, NodeInfo
from runtime._wire.messages.control import ClusterState, Holding, JobInfo


def node(info: NodeInfo, holding: Holding | None = None) -> dict[str, Any]:
    """One node, and what keeps it from being idle."""
    return {
        "node_id": info.node_id.hex(),
        "state": info.state,
        "is_head": info.is_head,
        "node_type": info.node_type,
        "instance_id": info.instance_id,
        "address": info.address,
        "host_name": info.host_name,
        "resources_total": _visible(info.total),
        "resources_available": _visible(info.available),
        "labels": dict(info.labels),
        "started_s": info.started_s,
        "idle_since_s": info.idle_since_s,
        "death_reason": info.death_reason,
        "held_by": _holders(holding) if holding is not None else "",
    }


def alive(state: ClusterState) -> int:
    """How many nodes there are, the head's included."""
    return sum(info.state == "ALIVE" for info in state.nodes)


def _holders(holding: Holding) -> str:
    leases = sum(held.count for held in holding.held)
    parts = [f"{leases} lease{'' if leases == 1 else 's'}"] if leases else []
    return ", ".join([*parts, *([holding.bound_by] if holding.bound_by else [])])


def _visible(units: Mapping[str, int]) -> dict[str, float]:
    """Resources without the bookkeeping ones of placement groups and nodes."""
    return to_floats(
        {
            name: amount
            for name, amount in units.items()
            if "_group_" not in name and not name.startswith("node:")
        }
    )


def demand(item: Demand) -> dict[str, Any]:
    """Equal requests that wait."""
    strategy = item.request.strategy
    return {
        "text": describe(item.request.resources, strategy.labels, strategy.fallbacks),
        "resources": to_floats(item.request.resources),
        "count": item.count,
        "infeasible": item.infeasible,
        "strategy": strategy.kind,
        "labels": dict(strategy.labels),
        "fallbacks": [dict(fallback) for fallback in strategy.fallbacks],
    }


def requests(state: ClusterState) -> list[dict[str, Any]]:
    """What was requested explicitly, owner by owner. `expires_s` is 0 for no end, `job_id` "" for a request that
    outlives its program."""
    columns = zip(state.requested, state.requested_selectors, state.requested_counts, strict=True)
    bundles = [
        {
            "text": describe(bundle, labels),
            "resources": to_floats(bundle),
            "labels": dict(labels),
            "count": count,
        }
        for bundle, labels, count in columns
    ]
    out = []
    for who in state.requesters:
        mine, bundles = bundles[: who.size], bundles[who.size :]
        out.append(
            {
                "owner": who.owner,
                "job_id": who.job_id.hex(),
                "expires_s": who.expires_s,
                "bundles": mine,
            }
        )
    return out


def cluster_status(
    name: str, state: ClusterState, jobs: Iterable[JobRecord], steps: Mapping[str, str]
) -> dict[str, Any]:
    """The whole picture for `clusterctl status`. `autoscaler` is its own report, None before the first.

    Args:
        steps: instance id -> the step of its setup that runs; the `step` of the instances of the report.
    """
    holdings = {holding.node_id: holding for holding in state.holdings}
    return {
        "cluster_name": name,
        "now_s": state.now_s,
        "nodes": [node(info, holdings.get(info.node_id)) for info in state.nodes],
        "demands": [demand(item) for item in state.demands],
        "placement_groups": [
            {
                "text": str(gang_of(group)),
                "pg_id": group.pg_id.hex(),
                "strategy": group.strategy,
                "bundles": [to_floats(bundle) for bundle in group.bundles],
                "placed": sum(1 for place in group.placed if place),
            }
            for group in state.groups
        ],
        "requested": requests(state),
        "autoscaler": _with_steps(json.loads(state.last_report), steps) if state.last_report else None,
        "jobs": [msgspec.to_builtins(record) for record in jobs],
    }


def _with_steps(report: dict[str, Any], steps: Mapping[str, str]) -> dict[str, Any]:
    for instance in report["instances"]:
        instance["step"] = steps.get(instance["id"], "")
    return report


def jobs(submitted: Iterable[JobRecord], drivers: Iterable[JobInfo]) -> list[dict[str, Any]]:
    """Submitted jobs with the engine's id of their driver, then drivers that connected by themselves."""
    by_submission = {info.submission_id: info for info in drivers if info.submission_id}
    out = []
    for record in submitted:
        info = by_submission.get(record.submission_id)
        if info is not None:
            record = msgspec.structs.replace(record, **_about_driver(info))
        out.append(msgspec.to_builtins(record))
    known = {record["submission_id"] for record in out}
    for info in drivers:
        if info.submission_id not in known:
            out.append(msgspec.to_builtins(_driver(info)))
    return out


def _about_driver(info: JobInfo) -> dict[str, Any]:
    job_id = info.job_id.hex()
    return {
        "job_id": job_id,
        "driver_info": {"id": job_id, "node_ip_address": info.host, "pid": str(info.pid)},
        "driver_node_id": info.driver.node_id.hex(),
    }


def _driver(info: JobInfo) -> JobRecord:
    return JobRecord(
        submission_id="",
        **_about_driver(info),
        type="DRIVER",
        entrypoint=info.entrypoint,
        status=JobStatus.RUNNING if info.state == "RUNNING" else JobStatus.SUCCEEDED,
        start_time=int(info.started_s * 1000),
        end_time=int(info.ended_s * 1000) or None,
    )
