"""Queries: the actors, tasks, nodes, jobs, workers, objects, placement groups, runtime environments and events of the
cluster.

The control store answers for actors, nodes, jobs, placement groups and events, the node agents for workers and
environments, the processes themselves for tasks and objects. The control store keeps the last processes that have
ended, and the last tasks that they had submitted. Objects of processes that have ended are not listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from runtime import api
from runtime._core import resources
from runtime._core.row_filters import Filter
from runtime._process.core_worker import current, current_or_none
from runtime._wire.messages import codec
from runtime._wire.messages.base import NodeInfo
from runtime._wire.messages.control import ActorInfo, GetNodes, JobInfo, ListActors, ListEnded, ListJobs
from runtime._wire.messages.groups import ListPlacementGroups, PlacementGroupInfo
from runtime._wire.messages.node import ListState
from runtime._wire.messages.worker import Push

from .common import (
    ActorState,
    ClusterEventState,
    DriverInfo,
    JobState,
    NodeState,
    ObjectState,
    PlacementGroupState,
    RuntimeEnvState,
    StateSchema,
    TaskState,
    WorkerState,
    check_options,
    choose,
)
from .exception import ServerUnavailable

S = TypeVar("S", bound=StateSchema)
_CREATION_STATES = {
    "DEPENDENCIES_UNREADY": "PENDING_ARGS_AVAIL",
    "PENDING_CREATION": "PENDING_NODE_ASSIGNMENT",
    "RESTARTING": "PENDING_NODE_ASSIGNMENT",
}


def connect(address: str | None) -> None:
    """Joins the cluster at `address` unless this program is connected.

    Raises:
        ServerUnavailable: no cluster is found there.
    """
    if current_or_none() is None:
        try:
            api.init(address or "auto", log_to_driver=False)
        except ConnectionError as error:
            raise ServerUnavailable(f"No cluster was found: {error}") from error


def _list(
    schema: type[S],
    rows: Callable[[float], Iterable[S]],
    address: str | None,
    filters: Sequence[Any] | None,
    limit: int,
    timeout: float,
    detail: bool,
) -> list[S]:
    checked = check_options(schema, filters, limit)
    connect(address)
    return choose(rows(timeout), checked, limit, detail)


def list_actors(
    address: str | None = None,
    filters: Sequence[tuple[str, str, Any]] | None = None,
    limit: int = 100,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[ActorState]:
    """The actors, dead ones included.

    Args:
        address: the cluster, if this program is not connected.
        filters: tuples (column, "=" or "!=", value), all of which must hold. Strings are compared without case.
        limit: the maximum number of rows.
        timeout: seconds to wait for the answer.
        detail: also fill the columns of details.
        raise_on_missing_output, _explain: without effect.

    Raises:
        ValueError: a filter or the limit is malformed.
        RayStateApiException: a filter names an unknown column, or no cluster is found.
    """
    return _list(ActorState, _actors, address, filters, limit, timeout, detail)


def list_placement_groups(
    address: str | None = None,
    filters: Sequence[tuple[str, str, Any]] | None = None,
    limit: int = 100,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[PlacementGroupState]:
    """The placement groups; see `list_actors`."""
    return _list(PlacementGroupState, _groups, address, filters, limit, timeout, detail)


def list_nodes(
    address: str | None = None,
    filters: Sequence[tuple[str, str, Any]] | None = None,
    limit: int = 100,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[NodeState]:
    """The nodes, dead ones included; see `list_actors`."""
    return _list(NodeState, _nodes, address, filters, limit, timeout, detail)


def list_jobs(
    address: str | None = None,
    filters: Sequence[tuple[str, str, Any]] | None = None,
    limit: int = 100,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[JobState]:
    """The jobs; see `list_actors`."""
    return _list(JobState, _jobs, address, filters, limit, timeout, detail)


def list_workers(
    address: str | None = None,
    filters: Sequence[tuple[str, str, Any]] | None = None,
    limit: int = 100,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[WorkerState]:
    """The workers and drivers, those that have ended included; see `list_actors`."""
    return _list(
        WorkerState, partial(_workers, filters or (), limit), address, filters, limit, timeout, detail
    )


def list_tasks(
    address: str | None = None,
    filters: Sequence[tuple[str, str, Any]] | None = None,
    limit: int = 100,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[TaskState]:
    """The tasks and calls, a row per attempt: the last 10 000 that each live process has submitted, and of all ended
    processes 10 000: the last 1 000 of each, or the last 200 of one that was killed. What a killed process did in its
    last two seconds is unknown: tasks that ended then count as failed. See `list_actors`."""
    return _list(TaskState, partial(_tasks, filters or (), limit), address, filters, limit, timeout, detail)


def list_objects(
    address: str | None = None,
    filters: Sequence[tuple[str, str, Any]] | None = None,
    limit: int = 100,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[ObjectState]:
    """The references to objects that live processes have; see `list_actors`."""
    return _list(
        ObjectState, partial(_objects, filters or (), limit), address, filters, limit, timeout, detail
    )


def list_runtime_envs(
    address: str | None = None,
    filters: Sequence[tuple[str, str, Any]] | None = None,
    limit: int = 100,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[RuntimeEnvState]:
    """The last 1 000 runtime environments of each node, failed ones included; see `list_actors`."""
    return _list(RuntimeEnvState, _environments, address, filters, limit, timeout, detail)


def list_cluster_events(
    address: str | None = None,
    filters: Sequence[tuple[str, str, Any]] | None = None,
    limit: int = 100,
    timeout: float = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[ClusterEventState]:
    """The last 1 000 events since the head started: nodes that joined or died, processes that crashed, and demand that
    the autoscaler does not serve; see `list_actors`."""
    return _list(ClusterEventState, _events, address, filters, limit, timeout, detail)


# ---------------------------------------------------------------- one


def get_actor(
    id: str, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> ActorState | None:
    """The actor with this id in hex, with details; or None."""
    return _first(list_actors(address, [("actor_id", "=", id)], 1, timeout, True))


def get_placement_group(
    id: str, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> PlacementGroupState | None:
    """The placement group with this id in hex, with details; or None."""
    return _first(list_placement_groups(address, [("placement_group_id", "=", id)], 1, timeout, True))


def get_node(
    id: str, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> NodeState | None:
    """The node with this id in hex, with details; or None."""
    return _first(list_nodes(address, [("node_id", "=", id)], 1, timeout, True))


def get_job(
    id: str, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> JobState | None:
    """The job with this id, or with this submission id; or None."""
    jobs = list_jobs(address, None, 10_000, timeout, True)
    return _first([job for job in jobs if id in (job.job_id, job.submission_id)])


def get_worker(
    id: str, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> WorkerState | None:
    """The worker or driver with this id in hex; or None."""
    return _first(list_workers(address, [("worker_id", "=", id)], 1, timeout, True))


def get_task(
    id: str, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> TaskState | list[TaskState] | None:
    """The task with this id in hex, with details; a list if it has several attempts; or None."""
    wanted = id if isinstance(id, str) else id.task_id().hex()
    attempts = list_tasks(address, [("task_id", "=", wanted)], 10_000, timeout, True)
    return attempts if len(attempts) > 1 else _first(attempts)


def get_objects(
    id: str, address: str | None = None, timeout: float = 30, _explain: bool = False
) -> list[ObjectState]:
    """The references to the object with this id in hex."""
    return list_objects(address, [("object_id", "=", id)], 10_000, timeout, True)


def _first(rows: Sequence[S]) -> S | None:
    return rows[0] if rows else None


# ---------------------------------------------------------------- summaries


def summarize_tasks(
    address: str | None = None,
    timeout: float = 30,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """The number of tasks by function and state."""
    rows = list_tasks(address, None, 10_000, timeout)
    summary: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = summary.setdefault(
            row.name,
            {"func_or_class_name": row.func_or_class_name, "type": row.type, "state_counts": {}},
        )
        counts = entry["state_counts"]
        counts[row.state] = counts.get(row.state, 0) + 1
    kinds = Counter(row.type for row in rows)
    totals = {
        "total_tasks": kinds["NORMAL_TASK"],
        "total_actor_tasks": kinds["ACTOR_TASK"],
        "total_actor_scheduled": kinds["ACTOR_CREATION_TASK"],
        "summary_by": "func_name",
    }
    return {"cluster": {"summary": summary, **totals}}


def summarize_actors(
    address: str | None = None,
    timeout: float = 30,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """The number of actors by class and state."""
    rows = list_actors(address, None, 10_000, timeout)
    summary: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = summary.setdefault(row.class_name, {"class_name": row.class_name, "state_counts": {}})
        counts = entry["state_counts"]
        counts[row.state] = counts.get(row.state, 0) + 1
    return {"cluster": {"summary": summary, "total_actors": len(rows), "summary_by": "class"}}


def summarize_objects(
    address: str | None = None,
    timeout: float = 30,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """The number of references to objects, and the total size of the objects."""
    rows = list_objects(address, None, 10_000, timeout)
    size_mb = sum(max(0, row.object_size) for row in rows) / 2**20
    summary = {
        "disabled": {
            "total_objects": len(rows),
            "total_size_mb": size_mb,
            "total_num_workers": len({row.pid for row in rows}),
            "total_num_nodes": len({row.ip for row in rows}),
            "task_state_counts": dict(Counter(row.task_status for row in rows)),
            "ref_type_counts": dict(Counter(row.reference_type for row in rows)),
        }
    }
    return {
        "cluster": {
            "summary": summary,
            "total_objects": len(rows),
            "total_size_mb": size_mb,
            "callsite_enabled": False,
            "summary_by": "callsite",
        }
    }


# ---------------------------------------------------------------- rows


def _actor_infos(timeout: float) -> list[ActorInfo]:
    infos: list[ActorInfo] = current().ask(ListActors(), timeout).actors
    return infos


def _actors(timeout: float) -> list[ActorState]:
    return [_actor(info) for info in _actor_infos(timeout)]


def _actor(info: ActorInfo) -> ActorState:
    spec = info.spec
    return ActorState(
        actor_id=info.actor_id.hex(),
        class_name=spec.class_name,
        state=info.state,
        job_id=spec.job_id.hex(),
        name=spec.name,
        node_id=info.node_id.hex() or None,
        pid=info.pid,
        ray_namespace=spec.namespace,
        serialized_runtime_env=spec.runtime_env or "{}",
        required_resources=resources.to_floats(spec.held),
        death_cause={"message": info.death_reason} if info.state == "DEAD" else None,
        is_detached=spec.detached,
        placement_group_id=spec.placement.placement_group_id.hex() or None,
        repr_name="",
        num_restarts=info.restarts,
        label_selector=dict(spec.placement.strategy.labels),
    )


def _groups(timeout: float) -> list[PlacementGroupState]:
    infos: list[PlacementGroupInfo] = current().ask(ListPlacementGroups(), timeout).groups
    return [
        PlacementGroupState(
            placement_group_id=info.pg_id.hex(),
            name=info.name,
            creator_job_id=info.job_id.hex(),
            state=info.state,
            bundles=[
                {
                    "bundle_id": {"placement_group_id": info.pg_id.hex(), "bundle_index": index},
                    "unit_resources": resources.to_floats(bundle),
                    "node_id": info.nodes[index].hex() if index < len(info.nodes) else "",
                }
                for index, bundle in enumerate(info.bundles)
            ],
            is_detached=info.detached,
            stats={
                "scheduling_state": info.scheduling,
                "scheduling_attempt": info.attempts,
                "scheduling_latency_us": round(info.scheduling_s * 1e6),
                "end_to_end_creation_latency_us": round(info.creation_s * 1e6),
                "reason": info.reason,
            },
        )
        for info in infos
    ]


def _nodes(timeout: float) -> list[NodeState]:
    infos: list[NodeInfo] = current().ask(GetNodes(), timeout).nodes
    return [
        NodeState(
            node_id=info.node_id.hex(),
            node_ip=info.host,
            is_head_node=info.is_head,
            state="DEAD" if info.state == "DEAD" else "ALIVE",
            state_message=info.death_reason or None,
            node_name=info.host,
            resources_total=resources.to_floats(info.total) if info.state != "DEAD" else {},
            labels=dict(info.labels),
            start_time_ms=int(info.started_s * 1000),
        )
        for info in infos
    ]


def _jobs(timeout: float) -> list[JobState]:
    infos: list[JobInfo] = current().ask(ListJobs(), timeout).jobs
    return [
        JobState(
            job_id=info.job_id.hex(),
            submission_id=info.submission_id or None,
            type="SUBMISSION" if info.submission_id else "DRIVER",
            status="RUNNING" if info.state == "RUNNING" else "SUCCEEDED",
            entrypoint=info.entrypoint,
            start_time=int(info.started_s * 1000),
            end_time=int(info.ended_s * 1000) or None,
            driver_info=DriverInfo(info.job_id.hex(), info.host, str(info.pid)),
            driver_node_id=info.driver.node_id.hex(),
        )
        for info in infos
    ]


_SURE = {
    "workers": frozenset({"worker_id", "is_alive", "worker_type", "node_id", "ip", "pid"}),
    "objects": frozenset(
        {
            "object_id",
            "object_size",
            "task_status",
            "attempt_number",
            "reference_type",
            "call_site",
            "type",
        }
    ),
    "tasks": frozenset(
        {
            "task_id",
            "attempt_number",
            "name",
            "job_id",
            "actor_id",
            "type",
            "func_or_class_name",
            "parent_task_id",
        }
    ),
}
"""Columns that the rows of processes have, and that nothing which others know changes."""


_KEYS = {"workers": ("worker_id",), "tasks": ("task_id", "attempt_number")}
"""What identifies a row, of the kinds of which the control store keeps those of ended processes."""


def _ask_processes(
    kind: str, timeout: float, filters: Sequence[Filter] = (), limit: int = 0
) -> list[dict[str, Any]]:
    """The rows of all processes. They leave out what does not pass filters of columns that they know for certain, and,
    where these are all, what is above the limit.
    """
    sure = [one for one in filters if one[0] in _SURE[kind] and isinstance(one[2], str | int | None)]
    sent = max(limit, 0) if len(sure) == len(filters) else 0
    rows: list[dict[str, Any]] = current().ask(ListState(kind, True, sure, sent), timeout).rows
    if kind in _KEYS:
        known = {tuple(map(row.get, _KEYS[kind])) for row in rows if not row.get("running")}
        for row in current().ask(ListEnded(kind, sure, sent), timeout).rows:
            key = tuple(map(row.get, _KEYS[kind]))
            if key not in known:  # it may have been reported twice, or still have answered itself
                known.add(key)
                rows.append(row)
    return rows


def _workers(filters: Sequence[Filter], limit: int, timeout: float) -> list[WorkerState]:
    rows = _ask_processes("workers", timeout, filters, limit)
    columns = WorkerState.columns()
    return [WorkerState(**{name: row[name] for name in row.keys() & columns}) for row in rows]


def _environments(timeout: float) -> list[RuntimeEnvState]:
    rows = current().ask(ListState("runtime_envs", True), timeout).rows
    return [RuntimeEnvState(**row) for row in rows]


def _events(timeout: float) -> list[ClusterEventState]:
    return [ClusterEventState(**row) for row in current().ask(ListEnded("cluster_events"), timeout).rows]


def _objects(filters: Sequence[Filter], limit: int, timeout: float) -> list[ObjectState]:
    return [ObjectState(**row) for row in _ask_processes("objects", timeout, filters, limit)]


def _tasks(filters: Sequence[Filter], limit: int, timeout: float) -> list[TaskState]:
    asked = _ask_processes("tasks", timeout, filters, limit)
    running = {row["task_id"]: row for row in asked if row.get("running")}
    pids = {row["worker_id"]: row["pid"] for row in _ask_processes("workers", timeout)}
    rows = [_creation(info) for info in _actor_infos(timeout)]
    for row in asked:
        if row.get("running"):
            continue
        now = running.get(row["task_id"])
        if now is not None and now["waits"] and row["state"] == "SUBMITTED_TO_WORKER":
            row["state"] = "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY"
        elif now is not None and row["state"] == "SUBMITTED_TO_WORKER":
            row |= {"state": "RUNNING", "worker_id": now["worker_id"], "node_id": now["node_id"]}
        row["worker_pid"] = pids.get(row.get("worker_id", ""))
        rows.append(TaskState(**{name: row[name] for name in row.keys() & TaskState.columns()}))
    return rows


def _creation(info: ActorInfo) -> TaskState:
    """The task that makes an actor, which the control store starts."""
    spec = info.spec
    push = codec.decode(spec.creation) if spec.creation else None
    failed = info.state == "DEAD" and not info.pid
    function = f"{spec.class_name.rpartition('.')[2]}.__init__"
    return TaskState(
        task_id=push.task_id.hex() if isinstance(push, Push) else "",
        attempt_number=info.restarts,
        name=f"{spec.name}:{function}" if spec.name else function,
        state=_CREATION_STATES.get(info.state, "FAILED" if failed else "FINISHED"),
        job_id=spec.job_id.hex(),
        actor_id=info.actor_id.hex(),
        type="ACTOR_CREATION_TASK",
        func_or_class_name=function,
        parent_task_id="",
        node_id=info.node_id.hex() or None,
        worker_id=info.address.worker_id.hex() if info.address is not None else None,
        worker_pid=info.pid or None,
        required_resources=resources.to_floats(spec.placement.resources),
    )
