"""The rows of `runtime.util.state`, and filters for them. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, TypeVar

from runtime._core.row_filters import Filter, passes

from .exception import RayStateApiException

PREDICATES = ("=", "!=")
MAX_LIMIT = 10_000


@dataclasses.dataclass(init=True)
class StateSchema:
    """One row. Columns are attributes and dict keys."""

    def __getitem__(self, column: str) -> Any:
        if column not in self.columns():
            raise KeyError(column)
        return getattr(self, column)

    def get(self, column: str, default: Any = None) -> Any:
        """The value of a column, or `default` if the column does not exist."""
        return getattr(self, column) if column in self.columns() else default

    def asdict(self) -> dict[str, Any]:
        """All columns."""
        return dataclasses.asdict(self)

    @classmethod
    def columns(cls) -> set[str]:
        """The names of all columns."""
        return {one.name for one in dataclasses.fields(cls)}

    @classmethod
    def list_columns(cls, detail: bool = True) -> list[str]:
        """The names of the columns, those of details only if wanted."""
        return [f.name for f in dataclasses.fields(cls) if detail or not f.metadata.get("detail")]

    @classmethod
    def filterable_columns(cls) -> set[str]:
        """The columns that a filter may name."""
        return {f.name for f in dataclasses.fields(cls) if f.metadata.get("filterable", True)}


_DETAIL = {"detail": True, "filterable": False}
_DETAIL_TO_FILTER = {"detail": True, "filterable": True}
_NO_FILTER = {"filterable": False}


@dataclasses.dataclass
class ActorState(StateSchema):
    """An actor."""

    actor_id: str
    class_name: str
    state: str  # DEPENDENCIES_UNREADY PENDING_CREATION ALIVE RESTARTING DEAD
    job_id: str
    name: str | None = None
    node_id: str | None = None
    pid: int | None = None
    ray_namespace: str | None = None
    serialized_runtime_env: str | None = field(default=None, metadata=_DETAIL)
    required_resources: dict[str, float] | None = field(default=None, metadata=_DETAIL)
    death_cause: dict[str, Any] | None = field(default=None, metadata=_DETAIL)
    is_detached: bool | None = field(default=None, metadata=_DETAIL)
    placement_group_id: str | None = field(default=None, metadata=_DETAIL_TO_FILTER)
    repr_name: str | None = field(default=None, metadata=_DETAIL_TO_FILTER)
    num_restarts: int | None = field(default=None, metadata=_DETAIL)
    label_selector: dict[str, str] | None = field(default=None, metadata=_DETAIL)


@dataclasses.dataclass
class PlacementGroupState(StateSchema):
    """A placement group."""

    placement_group_id: str
    name: str
    creator_job_id: str
    state: str  # PENDING PREPARED CREATED REMOVED RESCHEDULING
    bundles: list[dict[str, Any]] | None = field(default=None, metadata=_DETAIL)
    is_detached: bool | None = field(default=None, metadata=_DETAIL_TO_FILTER)
    stats: dict[str, Any] | None = field(default=None, metadata=_DETAIL)


@dataclasses.dataclass
class NodeState(StateSchema):
    """A node."""

    node_id: str
    node_ip: str
    is_head_node: bool
    state: str  # ALIVE DEAD
    state_message: str | None = field(default=None, metadata=_NO_FILTER)
    node_name: str = ""
    resources_total: dict[str, float] | None = field(default=None, metadata=_NO_FILTER)
    labels: dict[str, str] | None = field(default=None, metadata=_NO_FILTER)
    start_time_ms: int | None = field(default=None, metadata=_DETAIL)
    end_time_ms: int | None = field(default=None, metadata=_DETAIL)


@dataclasses.dataclass
class DriverInfo:
    """The process of a job's driver."""

    id: str
    node_ip_address: str
    pid: str


@dataclasses.dataclass
class JobState(StateSchema):
    """A driver and all it started."""

    job_id: str | None
    submission_id: str | None
    type: str  # DRIVER SUBMISSION
    status: str  # RUNNING SUCCEEDED
    entrypoint: str
    start_time: int | None = None
    end_time: int | None = None
    driver_info: DriverInfo | None = field(default=None, metadata=_NO_FILTER)
    driver_node_id: str | None = None


@dataclasses.dataclass
class WorkerState(StateSchema):
    """A process of the cluster that runs tasks or a driver."""

    worker_id: str
    is_alive: bool
    worker_type: str  # WORKER DRIVER
    exit_type: str | None
    node_id: str
    ip: str
    pid: int
    exit_detail: str | None = field(default=None, metadata=_DETAIL)
    start_time_ms: int | None = field(default=None, metadata=_DETAIL)
    end_time_ms: int | None = field(default=None, metadata=_DETAIL)


@dataclasses.dataclass
class TaskState(StateSchema):
    """One attempt of a task or call."""

    task_id: str
    attempt_number: int
    name: str
    state: str
    job_id: str
    actor_id: str | None
    type: str  # NORMAL_TASK ACTOR_TASK ACTOR_CREATION_TASK
    func_or_class_name: str
    parent_task_id: str
    node_id: str | None = None
    worker_id: str | None = None
    worker_pid: int | None = None
    error_type: str | None = None
    language: str | None = field(default="PYTHON", metadata=_DETAIL_TO_FILTER)
    required_resources: dict[str, float] | None = field(default=None, metadata=_DETAIL)
    placement_group_id: str | None = field(default=None, metadata=_DETAIL_TO_FILTER)
    creation_time_ms: int | None = field(default=None, metadata=_DETAIL)
    start_time_ms: int | None = field(default=None, metadata=_DETAIL)
    end_time_ms: int | None = field(default=None, metadata=_DETAIL)
    error_message: str | None = field(default=None, metadata=_DETAIL)


@dataclasses.dataclass
class ObjectState(StateSchema):
    """A reference to an object, as one process has it."""

    object_id: str
    object_size: int
    task_status: str
    attempt_number: int
    reference_type: str
    call_site: str
    type: str  # DRIVER WORKER
    pid: int
    ip: str


@dataclasses.dataclass
class RuntimeEnvState(StateSchema):
    """A runtime environment that a node has prepared, or could not."""

    runtime_env: dict[str, Any]
    success: bool
    creation_time_ms: float | None = field(default=None, metadata=_NO_FILTER)
    node_id: str = ""
    ref_cnt: int | None = field(default=None, metadata=_DETAIL)
    error: str | None = field(default=None, metadata=_DETAIL_TO_FILTER)


@dataclasses.dataclass
class ClusterEventState(StateSchema):
    """Something that has happened to the cluster."""

    severity: str  # INFO WARNING ERROR
    time: str = field(metadata=_NO_FILTER)
    source_type: str  # RAYLET GCS AUTOSCALER CLUSTER_LIFECYCLE
    message: str = field(metadata=_NO_FILTER)
    event_id: str
    custom_fields: dict[str, Any] | None = field(default=None, metadata=_DETAIL)


S = TypeVar("S", bound=StateSchema)


def check_options(schema: type[StateSchema], filters: Sequence[Any] | None, limit: int) -> list[Filter]:
    """Checks filters and returns them.

    Raises:
        ValueError: a filter is malformed.
        RayStateApiException: a filter names an unknown column, or the limit is too high.
    """
    if limit > MAX_LIMIT:
        raise RayStateApiException(
            f"Given limit {limit} exceeds the supported limit {MAX_LIMIT}. Use a lower limit, or filters."
        )
    checked = []
    for one in filters or ():
        if not isinstance(one, list | tuple) or len(one) != 3:
            raise ValueError(f"The filter {one!r} is not (column, predicate, value).")
        column, predicate, value = one
        column = column.lower() if isinstance(column, str) else column
        if predicate not in PREDICATES:
            raise ValueError(
                f"Unsupported filter predicate {predicate} is given. Available predicates: {', '.join(PREDICATES)}."
            )
        if column not in schema.filterable_columns():
            raise RayStateApiException(
                f"Invalid filter column {column!r}: it is not supported. "
                f"Supported filter columns: {sorted(schema.filterable_columns())}"
            )
        checked.append((column, predicate, value))
    return checked


def choose(rows: Iterable[S], filters: Sequence[Filter], limit: int, detail: bool) -> list[S]:
    """The rows that pass all filters, at most `limit`; without `detail` their details are None."""
    chosen = [row for row in rows if all(passes(getattr(row, c), p, v) for c, p, v in filters)][:limit]
    if not detail:
        for row in chosen:
            for column in dataclasses.fields(row):
                if column.metadata.get("detail"):
                    setattr(row, column.name, None)
    return chosen
