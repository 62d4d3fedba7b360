"""What the control store answers and announces. Sent by node agents, the autoscaler, the API server and `clusterctl`.

Drivers and workers send the requests of `FROM_WORKERS` to their own node agent, which forwards them unread.
All watches are long polls: they answer when the version is above `after_version`, or after `timeout_s` with what there
is. So a lost connection or a restarted control store loses nothing: ask again.
"""

from __future__ import annotations

from typing import Any

from .base import (
    Demand,
    Message,
    NodeInfo,
    Ok,
    Request,
    ResourceRequest,
    WorkerAddress,
)
from .groups import CreatePlacementGroup, ListPlacementGroups, RemovePlacementGroup, WatchPlacementGroup

# ---------------------------------------------------------------- nodes


class NodeRegistered(Message, frozen=True, array_like=True, tag=101):
    """`nodes` is the whole cluster, the new node included; `dead` are the ids of those that have died."""

    cluster_id: str
    nodes: list[NodeInfo]
    dead: list[bytes] = []


class RegisterNode(Message, Request[NodeRegistered], frozen=True, array_like=True, tag=100):
    """Agent -> control, first message of its connection, again after every reconnect.

    `actors` are the actors alive on the node (id, worker), so that a restarted control store agrees with reality.
    """

    info: NodeInfo
    actors: list[tuple[bytes, WorkerAddress]] = []


class NodeReport(Message, frozen=True, array_like=True, tag=102):
    """Agent -> control, one-way: on change (at most every 50 ms) and at least every second; also the heartbeat.

    `total` changes with placement-group bundles. `demands` are the leases that wait at this agent.
    """

    node_id: bytes
    total: dict[str, int]
    available: dict[str, int]
    demands: list[Demand]
    idle_since_s: float
    store_used_bytes: int = 0
    held: list[Demand] = []  # the leases of its workers, equal requests summed
    bound_by: str = ""  # what holds it and cannot go elsewhere, e.g. "actors, objects"; "": nothing


class NodeLoad(Message, frozen=True, array_like=True):
    """Total and available resources of a node that the receiver knows."""

    node_id: bytes
    total: dict[str, int]
    available: dict[str, int]


class ClusterView(Message, frozen=True, array_like=True, tag=103):
    """Control -> every agent, one-way: what changed since the last one. `nodes` joined, are draining or dead (a dead
    node is sent once); of `loads` only the resources changed."""

    nodes: list[NodeInfo]
    notes: list[tuple[str, str]] = []  # of what waits at this agent: (demand as text, why it is not met)
    loads: list[NodeLoad] = []
    has_notes: bool = False  # `notes` replace those of before


class Nodes(Message, frozen=True, array_like=True, tag=105):
    nodes: list[NodeInfo]


class GetNodes(Message, Request[Nodes], frozen=True, array_like=True, tag=104):
    """Every node, dead ones of this cluster's life included."""


class DrainNode(Message, Request[Ok], frozen=True, array_like=True, tag=106):
    """Autoscaler -> control: stop placing work on the node. With `only_if_idle` an `ErrorReply(BUSY)` refuses when
    the node is not idle any more. The control store marks it DRAINING and tells the agent with `Drain`."""

    node_id: bytes
    reason: str
    only_if_idle: bool = True
    deadline_ms: int = 0  # when its machine goes, in Unix time; 0: not known


class Drain(Message, Request[Ok], frozen=True, array_like=True, tag=107):
    """Control -> agent: refuse new leases; answer BUSY when `only_if_idle` and something holds the node."""

    reason: str
    only_if_idle: bool


class ResumeNode(Message, Request[Ok], frozen=True, array_like=True, tag=109):
    """Autoscaler -> control: place work on a node again that drains. One that does not drain stays as it is. The
    control store tells the agent with `Resume` and marks the node ALIVE."""

    node_id: bytes
    reason: str


class Resume(Message, Request[Ok], frozen=True, array_like=True, tag=110):
    """Control -> agent: the drain is off."""

    reason: str


class StopNode(Message, frozen=True, array_like=True, tag=108):
    """Control -> agent, one-way: end the node: kill the workers, leave nothing behind, exit."""

    reason: str


# ---------------------------------------------------------------- jobs


class JobInfo(Message, frozen=True, array_like=True, tag=121):
    """A driver and all it started. `config` is the JSON that workers of the job receive (see `JobConfig` below)."""

    job_id: bytes  # 4 bytes
    state: str  # RUNNING | FINISHED
    driver: WorkerAddress
    pid: int
    host: str
    namespace: str
    entrypoint: str
    config: str
    started_s: float
    ended_s: float = 0.0
    submission_id: str = ""  # "" for a driver started by hand


class AddJob(Message, Request[JobInfo], frozen=True, array_like=True, tag=120):
    """Agent -> control for a driver that registers. The answer carries the new job id.

    `config` is JSON: {"sys_path": [...], "cwd": "...", "runtime_env": {...}, "log_to_driver": true}.
    """

    node_id: bytes
    driver: WorkerAddress
    pid: int
    namespace: str
    entrypoint: str
    config: str
    submission_id: str = ""


class GetJob(Message, Request[JobInfo], frozen=True, array_like=True, tag=122):
    job_id: bytes


class Jobs(Message, frozen=True, array_like=True, tag=124):
    jobs: list[JobInfo]


class ListJobs(Message, Request[Jobs], frozen=True, array_like=True, tag=123):
    pass


class FinishJob(Message, Request[Ok], frozen=True, array_like=True, tag=125):
    """Agent -> control: the driver left (its socket closed). Its non-detached actors and groups end."""

    job_id: bytes


class JobFinished(Message, frozen=True, array_like=True, tag=126):
    """Control -> every agent, one-way: kill the job's workers except actors that may outlive it, free its objects."""

    job_id: bytes


# ---------------------------------------------------------------- workers


class WorkerFailed(Message, frozen=True, array_like=True, tag=130):
    """Agent -> control, one-way: a worker process ended, as expected or not."""

    worker_id: bytes
    actor_id: bytes  # empty when it held no actor
    reason: str
    intended: bool = False  # exit_actor, kill, graceful end


class WorkersDead(Message, frozen=True, array_like=True, tag=131):
    """Control -> every agent, one-way: these processes are gone; drop the objects they owned, end their leases."""

    worker_ids: list[bytes]


AUTOSCALER = "autoscaler"
"""The name, with process 0, in front of lines that say why work waits."""


class LogBatch(Message, frozen=True, array_like=True, tag=132):
    """Agent -> control -> the agent of the job's driver -> driver, one-way: new lines of a worker's output."""

    job_id: bytes
    node_id: bytes
    host: str
    pid: int
    name: str  # task or actor name for the prefix; may be empty
    is_error_stream: bool
    lines: list[str]


# ---------------------------------------------------------------- actors


class ActorSpec(Message, frozen=True, array_like=True, tag=141):
    """Everything needed to make the actor again. `creation` is an encoded `worker.Push` (the constructor call)."""

    actor_id: bytes  # 16 bytes
    job_id: bytes
    class_name: str
    name: str  # "" when unnamed
    namespace: str
    owner: WorkerAddress
    detached: bool
    max_restarts: int  # -1: without bound
    max_task_retries: int
    max_concurrency: int
    placement: ResourceRequest  # what a node must have for the actor to be placed there
    held: dict[str, int]  # what the actor keeps while it lives
    runtime_env: str  # JSON, "" for none
    function_key: bytes  # the class in KV namespace "functions"
    creation: bytes  # empty: the arguments are not there yet
    methods: bytes = b""  # method names and defaults, for handles made by get_actor
    is_spare: bool = False  # see runtime._extension.workers.SPARE


class ActorInfo(Message, frozen=True, array_like=True, tag=142):
    """The actor's state. `version` grows with every change."""

    actor_id: bytes
    state: str  # DEPENDENCIES_UNREADY | PENDING_CREATION | ALIVE | RESTARTING | DEAD
    version: int
    address: WorkerAddress | None
    restarts: int
    spec: ActorSpec
    death_reason: str = ""
    death_cause: bytes = b""  # serialized exception when the constructor raised
    pid: int = 0
    node_id: bytes = b""
    unplaceable: bool = False  # dead because no node can ever hold it
    host: str = ""  # of its node, while it lives or since it died
    never_started: bool = False  # dead before its first constructor was done
    no_environment: bool = False  # dead because its runtime environment cannot be built


class RegisterActor(Message, Request[ActorInfo], frozen=True, array_like=True, tag=140):
    """Worker/driver -> control. Idempotent by actor id. EXISTS when the name is taken; with `get_if_exists` the answer
    is the holder of the name instead. The class is in KV already. A spec without `creation` takes the name and waits:
    the whole spec follows when the constructor's arguments are there."""

    spec: ActorSpec
    get_if_exists: bool = False


class WatchActor(Message, Request[ActorInfo], frozen=True, array_like=True, tag=143):
    actor_id: bytes
    after_version: int = -1
    timeout_s: float = 30.0


class GetNamedActor(Message, Request[ActorInfo], frozen=True, array_like=True, tag=144):
    """NOT_FOUND unless an actor of that name is not DEAD."""

    name: str
    namespace: str


class Actors(Message, frozen=True, array_like=True, tag=146):
    actors: list[ActorInfo]


class ListActors(Message, Request[Actors], frozen=True, array_like=True, tag=145):
    """All actors, dead ones included (bounded to the last 10 000)."""

    named_only: bool = False
    namespace: str = ""  # "": all


class KillActor(Message, Request[Ok], frozen=True, array_like=True, tag=147):
    """Ends the actor's process. With `no_restart=False` its restarts apply. Unknown: Ok; dead: its name is
    free again.
    `graceful`: the last handle went; the worker ends after the calls it already has. `cause`: the serialized exception
    of a constructor that cannot be called, for one of its arguments is an error."""

    actor_id: bytes
    no_restart: bool = True
    graceful: bool = False
    cause: bytes = b""


class ActorStarted(Message, frozen=True, array_like=True, tag=149):
    """`error` is a serialized exception when the constructor raised (the worker is gone then); `exited` says how when
    it ended the process on purpose."""

    address: WorkerAddress
    pid: int
    error: bytes = b""
    exited: str = ""


class StartActor(Message, Request[ActorStarted], frozen=True, array_like=True, tag=148):
    """Control -> agent: take `placement`, start a worker, run the constructor, then keep only `held`.
    BUSY when the resources are not there now; RUNTIME_ENV when the environment cannot be built."""

    spec: ActorSpec
    restarts: int


class StopActor(Message, frozen=True, array_like=True, tag=150):
    """Control -> agent, one-way. `graceful` sends the worker `worker.ExitActor` first and kills after 30 s."""

    actor_id: bytes
    graceful: bool
    intended: bool = True  # False: let max_restarts act


# ---------------------------------------------------------------- key-value


class KvValue(Message, frozen=True, array_like=True, tag=181):
    value: bytes | None


DEFINITIONS = "functions"
"""The namespace of the classes of actors; their keys are digests of their values."""

USER_KEYS = "user:"
"""In front of the namespaces of programs, apart from what the engine itself keeps."""


class KvGet(Message, Request[KvValue], frozen=True, array_like=True, tag=180):
    namespace: str
    key: bytes


class KvAdded(Message, frozen=True, array_like=True, tag=183):
    added: bool  # False: the key was there


class KvPut(Message, Request[KvAdded], frozen=True, array_like=True, tag=182):
    """On disk before it is answered."""

    namespace: str
    key: bytes
    value: bytes
    overwrite: bool = True


class KvDeleted(Message, frozen=True, array_like=True, tag=185):
    count: int


class KvDelete(Message, Request[KvDeleted], frozen=True, array_like=True, tag=184):
    namespace: str
    key: bytes
    is_prefix: bool = False


class KvKeyList(Message, frozen=True, array_like=True, tag=187):
    keys: list[bytes]


class KvKeys(Message, Request[KvKeyList], frozen=True, array_like=True, tag=186):
    namespace: str
    prefix: bytes = b""


# ---------------------------------------------------------------- autoscaling


class PendingGroup(Message, frozen=True, array_like=True):
    """A placement group that waits; `placed` are node ids of the bundles that have one already."""

    pg_id: bytes
    strategy: str
    bundles: list[dict[str, int]]
    placed: list[bytes]
    selectors: list[dict[str, str]] = []  # label selector per bundle, or none at all
    domain: str = ""  # a label's key: all bundles go to nodes that have the same value of it


class Holding(Message, frozen=True, array_like=True):
    """What holds a busy node: leases, which end with their tasks, and whether anything is there that cannot go."""

    node_id: bytes
    held: list[Demand]
    bound_by: str


class Requester(Message, frozen=True, array_like=True):
    """Somebody who asked for resources explicitly. `size` entries of `ClusterState.requested` are its; `expires_s` is
    unix time, 0 for no end; `job_id` is the program that it ends with, b"" when it outlives its program."""

    owner: str
    size: int
    expires_s: float = 0.0
    job_id: bytes = b""


class ClusterState(Message, frozen=True, array_like=True, tag=201):
    """One consistent picture for the autoscaler. `demands`: waiting leases of all agents and waiting actors, equal
    shapes summed; requests inside placement groups are left out (the group itself is the demand). `requested` are the
    different bundles of one requester after the other."""

    version: int
    now_s: float
    nodes: list[NodeInfo]
    demands: list[Demand]
    groups: list[PendingGroup]
    requested: list[dict[str, int]]  # explicit requests (autoscaler.sdk)
    last_report: bytes = b""  # the latest AutoscalerReport.report
    requested_selectors: list[dict[str, str]] = []  # of the nodes for `requested`, one each; {}: any node
    holdings: list[Holding] = []  # of the nodes that are busy
    requested_counts: list[int] = []  # how many of each of `requested`; none at all: one
    requesters: list[Requester] = []


class WatchClusterState(Message, Request[ClusterState], frozen=True, array_like=True, tag=200):
    """Answers at once when the version is above `after_version`, else when something that matters to the autoscaler
    changes (demand, nodes, idleness), or after `timeout_s`. With `only_version`, the answer has no more than that: the
    picture of a large cluster is not for every change. Without `with_report` it comes without the last report."""

    after_version: int = -1
    timeout_s: float = 5.0
    only_version: bool = False
    with_report: bool = True


class RequestResources(Message, Request[Ok], frozen=True, array_like=True, tag=202):
    """Replaces the explicit demand of `owner` until `ttl_s` passes (0: no limit), or the job ends (b"": not with any).
    `selectors` and `counts`: one for each bundle, or none at all."""

    owner: str
    bundles: list[dict[str, int]]
    ttl_s: float = 0.0
    selectors: list[dict[str, str]] = []
    counts: list[int] = []
    job_id: bytes = b""


class AutoscalerReport(Message, Request[Ok], frozen=True, array_like=True, tag=203):
    """Autoscaler -> control after each tick that changed something. `report` is JSON for `clusterctl status`.
    `notes` say why a demand is not served, infeasible or not: they reach the drivers whose tasks wait through
    `ClusterView.notes`; those of actors, and of placement groups by their ids, through `LogBatch`."""

    report: bytes
    notes: list[tuple[str, str]]
    group_notes: list[tuple[bytes, str]] = []


class ClusterInfo(Message, frozen=True, array_like=True, tag=211):
    cluster_id: str
    session_dir: str
    started_s: float
    python_version: str


class GetClusterInfo(Message, Request[ClusterInfo], frozen=True, array_like=True, tag=210):
    pass


class EndedRows(Message, frozen=True, array_like=True, tag=213):
    """See `node.StateRows`."""

    rows: list[dict[str, Any]]


class ListEnded(Message, Request[EndedRows], frozen=True, array_like=True, tag=212):
    """What is kept of processes that have ended ("workers", "tasks"), and "cluster_events". See `node.ListState`."""

    kind: str
    filters: list[tuple[str, str, Any]] = []
    limit: int = 0


class ReportEnded(Message, Request[Ok], frozen=True, array_like=True, tag=214):
    """An agent says that a process has ended ("workers"), or the process itself, before it ends, which tasks it had
    submitted ("tasks")."""

    kind: str
    rows: list[dict[str, Any]]


FROM_WORKERS: tuple[type[Message], ...] = (
    GetNodes,
    GetJob,
    ListJobs,
    RegisterActor,
    WatchActor,
    GetNamedActor,
    ListActors,
    KillActor,
    CreatePlacementGroup,
    WatchPlacementGroup,
    RemovePlacementGroup,
    ListPlacementGroups,
    KvGet,
    KvPut,
    KvDelete,
    KvKeys,
    RequestResources,
    WatchClusterState,
    GetClusterInfo,
    ListEnded,
    ReportEnded,
)
"""The requests that a node agent forwards for its drivers and workers."""
