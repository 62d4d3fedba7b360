"""What a driver or worker says to its own node agent and hears from it (Unix socket), and what agents say to each other
(TCP). A process is known by its connection: when the socket closes, the process counts as dead.
"""

from __future__ import annotations

from typing import Any

from .base import Message, Ok, Request, ResourceRequest, WorkerAddress

# ---------------------------------------------------------------- joining


class Registered(Message, frozen=True, array_like=True, tag=301):
    """`store_path` (under /proc/<agent>/fd) is the store's shared memory: open it read-write and map
    `store_capacity_bytes`. `job_config` is `control.AddJob.config`. `secret` proves us to processes of other nodes."""

    node_id: bytes
    node_host: str
    job_id: bytes
    namespace: str
    job_config: str
    session_dir: str
    cluster_id: str
    control_address: str
    secret: bytes
    store_path: str
    store_capacity_bytes: int
    labels: dict[str, str] = {}
    runtime_env: str = ""  # workers: JSON of the environment they were started for
    is_head: bool = False
    settings: dict[str, str] = {}  # of the node, by their names in Ray's `_system_config`
    metrics_port: int = 0
    python_version: str = ""  # of the node, for instance "3.12"


class Register(Message, Request[Registered], frozen=True, array_like=True, tag=300):
    """First message on the connection. A driver leaves `startup_token` 0 and describes its job; a worker repeats the
    token that the zygote gave it."""

    is_driver: bool
    address: WorkerAddress  # node_id may be empty: the agent knows it
    pid: int
    startup_token: int = 0
    namespace: str = ""
    entrypoint: str = ""
    job_config: str = ""
    submission_id: str = ""


class PrestartWorkers(Message, frozen=True, array_like=True, tag=304):
    """One-way, from a driver whose job has an environment: its packages are uploaded, workers may be started."""


class SetUp(Message, frozen=True, array_like=True, tag=305):
    """One-way, from a worker that was started with modules to import or a setup hook: done, or raised `error`."""

    error: str = ""


# ---------------------------------------------------------------- leases: process -> agent


class LeaseDemand(Message, frozen=True, array_like=True, tag=310):
    """One-way. `count` is how many MORE workers the process wants now for this class: it replaces the last number
    (0 withdraws). Each `LeaseGranted` lowers it by one on both sides. `class_key` is the sender's own name for
    (request, runtime_env); `locality` maps node id -> bytes of arguments it holds."""

    class_key: bytes
    count: int
    request: ResourceRequest
    runtime_env: str = ""  # JSON, "" for none
    locality: dict[bytes, int] = {}
    name: str = ""  # of the function, for reports
    retriable: bool = True  # may its tasks run again when their worker is ended for its memory


class LeaseReturn(Message, frozen=True, array_like=True, tag=311):
    """One-way: the lease is not needed any more. `discard`: the worker must not be used again."""

    lease_id: bytes
    discard: bool = False


class Blocked(Message, frozen=True, array_like=True, tag=312):
    """One-way, from a worker whose task waits in get/wait: lend its CPUs to others until `Unblocked`. `whole`: also
    those that its actor otherwise keeps for life."""

    whole: bool = False


class Unblocked(Message, frozen=True, array_like=True, tag=313):
    """One-way: the task runs again. Its CPUs are taken back at once, even if that oversubscribes for a while."""


class ArgumentsLost(Message, frozen=True, array_like=True, tag=315):
    """One-way, from a worker whose actor's constructor has to wait until its arguments are made again: everything that
    the actor holds is free meanwhile. The worker ends when they are there; then the actor is to be placed again."""


class WorkerExiting(Message, Request[Ok], frozen=True, array_like=True, tag=314):
    """From a worker that is about to end by itself: why, and whether that was wanted. Without a reason: it will end
    after the task that it has now, and must not be leased again. From a driver: it leaves in order."""

    reason: str = ""
    intended: bool = True


# ---------------------------------------------------------------- leases: agent -> process


class LeaseGranted(Message, frozen=True, array_like=True, tag=320):
    """One-way. `gpu_ids` and `other_ids` are the devices it may use: of the resource GPU, and of other kinds of
    accelerators by resource; `resources` the exact amounts assigned."""

    class_key: bytes
    lease_id: bytes  # 16 bytes
    worker: WorkerAddress
    resources: dict[str, int]
    gpu_ids: list[str] = []
    other_ids: dict[str, list[str]] = {}


class LeaseFailed(Message, frozen=True, array_like=True, tag=321):
    """One-way: the demand can never be met; every waiting task of the class fails. `kind`: RUNTIME_ENV, SETUP_HOOK,
    INVALID (hard affinity to a node that is dead or too small), or NOT_FOUND (placement group removed)."""

    class_key: bytes
    kind: str
    message: str


class LeaseLost(Message, frozen=True, array_like=True, tag=323):
    """One-way: the worker behind a lease died; `reason` says how (signal, exit code, out of memory, node died)."""

    lease_id: bytes
    worker_id: bytes
    reason: str
    node_died: bool = False
    out_of_memory: bool = False  # sent before the worker ends
    retry: bool = True  # out of memory: its task may run again, at no cost


class LeaseRecall(Message, frozen=True, array_like=True, tag=329):
    """One-way, agent -> owner, through the owner's agent if that is another one: others wait for the worker. The owner
    gives the lease back after the task that runs."""

    lease_id: bytes


class GiveIdleBack(Message, Request[Ok], frozen=True, array_like=True, tag=375):
    """Agent -> owner: give back the leases of workers of this node that have nothing to do."""

    node_id: bytes


class DriverLogs(Message, frozen=True, array_like=True, tag=324):
    """One-way, agent -> driver: see `control.LogBatch`."""

    host: str
    pid: int
    name: str
    is_error_stream: bool
    lines: list[str]
    node_id: bytes = b""


class Output(Message, frozen=True, array_like=True, tag=326):
    batches: list[DriverLogs]


class TakeOutput(Message, Request[Output], frozen=True, array_like=True, tag=327):
    """Driver -> agent -> the agents of the other nodes, before the driver leaves: what the job's workers have written
    and nobody has passed on yet. A node that does not answer in time is left out."""

    job_id: bytes


class ReopenOutput(Message, frozen=True, array_like=True, tag=306):
    """One-way, agent -> worker: the file of its output is `path` + ".1" now; go on in a new one called `path`."""

    path: str
    is_error_stream: bool


class MayEnd(Message, Request[Ok], frozen=True, array_like=True, tag=328):
    """Agent -> worker that idles: does anybody need what you own? BUSY if so."""


class NodeDied(Message, frozen=True, array_like=True, tag=325):
    """One-way, agent -> process: every process of that node counts as dead, even where a connection to it seems to
    live on (a machine that lost its power or its network closes none)."""

    node_id: bytes


# ---------------------------------------------------------------- object store: process -> agent


class StoreSpace(Message, frozen=True, array_like=True, tag=331):
    """With `path` there was no memory: the object is written to this file instead, which has its size."""

    offset: int  # into the mapping; 64-byte aligned
    path: str = ""


class StoreCreate(Message, Request[StoreSpace], frozen=True, array_like=True, tag=330):
    """Asks for `size_bytes`. Waits while copies are evicted, freed or spilled; `FULL` (with who holds what) after
    `timeout_s`, OUT_OF_DISK when neither memory nor disk has room. A creator whose connection closes before the seal
    leaves nothing. EXISTS when this node has it sealed, CLASH when another owner's object has the id."""

    object_id: bytes  # 28 bytes
    size_bytes: int
    owner: WorkerAddress
    timeout_s: float = 30.0
    tag: str = ""


class StoreSeal(Message, frozen=True, array_like=True, tag=332):
    """One-way: the bytes are written. The creator's process keeps a pin (see `StoreUnpin`); the node keeps the primary
    copy until `StoreFree` or the owner's death."""

    object_id: bytes


class StoreAbort(Message, frozen=True, array_like=True, tag=333):
    """One-way: give an unsealed object's space back."""

    object_id: bytes


class StoreAllotted(Message, frozen=True, array_like=True, tag=371):
    """(offset, length) of ranges of the mapping that the asking process may fill; none when memory is short."""

    ranges: list[tuple[int, int]]


class StoreAllot(Message, Request[StoreAllotted], frozen=True, array_like=True, tag=370):
    """Asks for space that the process will place `count` objects of `size_bytes` in, without asking for each. It goes
    back when the connection closes."""

    size_bytes: int
    count: int


class StoreAdd(Message, frozen=True, array_like=True, tag=372):
    """One-way: these objects are written, sealed, to space that was allotted. What else is said about them may come
    before this, from other processes (see `StoreSettle`). `keeper`: the process of this node that pins them from now
    on; "": the one that says so. `tag`: what they are counted under."""

    owner_worker: bytes
    owner_node: bytes
    objects: list[tuple[bytes, int, int]]  # id, offset, size_bytes
    keeper: bytes = b""
    tag: str = ""


class StoreReturn(Message, frozen=True, array_like=True, tag=373):
    """One-way: the process needs these ranges of what it was allotted no more."""

    ranges: list[tuple[int, int]]


class StoreSettle(Message, Request[Ok], frozen=True, array_like=True, tag=374):
    """Agent -> process: say what you have placed, and, with `give_back`, return what is free of your ranges: memory is
    short."""

    give_back: bool


class StorePinned(Message, frozen=True, array_like=True, tag=335):
    """With `path` the object is not in memory (any more): read this file in place."""

    offset: int
    size_bytes: int
    path: str = ""


class StorePin(Message, Request[StorePinned], frozen=True, array_like=True, tag=334):
    """Makes the object readable here and keeps it until `StoreUnpin` or the connection closes. If this node has no
    copy it is pulled from one of `locations`; LOST when none of those nodes has it any more, TIMEOUT after `timeout_s`.
    Pins count per process: each answered `StorePin` (and each own seal) needs one `StoreUnpin`."""

    object_id: bytes
    locations: list[bytes]  # node ids
    timeout_s: float | None = None


class StoreUnpin(Message, frozen=True, array_like=True, tag=336):
    object_ids: list[bytes]


class JobStore(Message, frozen=True, array_like=True):
    """What the objects of one job take of a node's object store. An object that is in memory and in a file counts as
    both."""

    job_id: bytes
    memory_bytes: int
    disk_bytes: int
    objects: int


class TagStore(Message, frozen=True, array_like=True):
    """The same of the objects that were made on this node under one tag; "": those that no task has made."""

    tag: str
    memory_bytes: int
    disk_bytes: int
    objects: int


class NodeStore(Message, frozen=True, array_like=True):
    """The object store of one node. `on_disk`: which of the objects asked for have been spilled there.
    `reserved_bytes`: of the memory, what processes have set aside for objects to come; it is not used.
    `evictable_bytes`: of what is used, what can go at once without a loss. `tags`: the largest ones."""

    node_id: bytes
    capacity_bytes: int
    used_bytes: int
    objects: int  # in memory
    spilled_bytes: int  # these and the following: since the node came up
    spilled_objects: int
    restored_bytes: int
    restored_objects: int
    on_disk: list[bytes] = []
    reserved_bytes: int = 0
    evictable_bytes: int = 0
    jobs: list[JobStore] = []
    tags: list[TagStore] = []


class StoreStatuses(Message, frozen=True, array_like=True, tag=339):
    stores: list[NodeStore]


class StoreStatus(Message, Request[StoreStatuses], frozen=True, array_like=True, tag=338):
    """Process -> agent, and, for this node only, agent -> agent. `everywhere`: of all nodes that can be reached."""

    object_ids: list[bytes] = []
    everywhere: bool = False


class StoreFree(Message, frozen=True, array_like=True, tag=337):
    """One-way, from the owner: nobody refers to these objects any more. Agents forward it to `locations`. Memory that
    a process still pins goes when the last pin does."""

    object_ids: list[bytes]
    locations: list[bytes]  # node ids that hold copies
    here: bool = True  # the copy of the asking process's node goes in any case
    unpinned: bool = False  # all pins of the asking process go as well


# ---------------------------------------------------------------- what there is: process -> agent -> processes


class StateRows(Message, frozen=True, array_like=True, tag=361):
    """One dict per task, object or process; the keys are those of `runtime.util.state`."""

    rows: list[dict[str, Any]]


class ListState(Message, Request[StateRows], frozen=True, array_like=True, tag=360):
    """What do you know of `kind` ("tasks", "objects", "spans", "workers", "runtime_envs")? An agent knows the latter
    two itself, and asks every process of its node for the others; with `everywhere` it asks the agents of the other
    nodes, too. Each gives the rows that pass `filters` (column, "=" or "!=", value), at most `limit`; 0: all."""

    kind: str
    everywhere: bool = False
    filters: list[tuple[str, str, Any]] = []
    limit: int = 0


class TasksTold(Message, frozen=True, array_like=True, tag=316):
    """Process -> agent, one-way, now and then: rows (MessagePack) of tasks that it has submitted, for the case that it
    is killed. `ended`: of `count` tasks that have ended since the last message. `pending`: of those that have not, in
    place of what the last message said of them."""

    count: int
    ended: bytes
    pending: bytes


# ---------------------------------------------------------------- metrics: process -> agent


class Series(Message, frozen=True, array_like=True):
    """The numbers of a metric under some tags: one; of a histogram the count per bucket, and the sum."""

    tags: list[tuple[str, str]]
    numbers: list[float]


class Metric(Message, frozen=True, array_like=True):
    kind: str  # counter | gauge | histogram
    name: str
    description: str
    boundaries: list[float]
    series: list[Series]


class MetricsReport(Message, frozen=True, array_like=True, tag=365):
    """One-way: all metrics of the process as they are; it replaces the last one."""

    metrics: list[Metric]
    at_s: float


# ---------------------------------------------------------------- agent -> agent


class RemoteLeaseGranted(Message, frozen=True, array_like=True, tag=341):
    """As `LeaseGranted`."""

    lease_id: bytes
    worker: WorkerAddress
    resources: dict[str, int]
    gpu_ids: list[str] = []
    other_ids: dict[str, list[str]] = {}


class RemoteLease(Message, Request[RemoteLeaseGranted], frozen=True, array_like=True, tag=340):
    """Spillback: the agent of the demanding process asks for one lease elsewhere. BUSY and CAPPED refuse at once, with
    no queue: the waiting stays with the asking agent. The answer may take as long as the worker's environment takes to
    build. The lease ends with that agent's connection. `lease_id`: its name, of the asking agent's choice. `origin`,
    `depth` and `class_key`: see `_core.worker_cap.SchedulingClass`."""

    owner: WorkerAddress
    job_id: bytes
    request: ResourceRequest
    runtime_env: str = ""
    retriable: bool = True
    lease_id: bytes = b""
    origin: bytes = b""
    depth: int = 1
    class_key: bytes = b""


class RemoteLeaseReturn(Message, frozen=True, array_like=True, tag=342):
    lease_id: bytes
    discard: bool = False


class RemoteLeaseLost(Message, frozen=True, array_like=True, tag=343):
    lease_id: bytes
    worker_id: bytes
    reason: str
    out_of_memory: bool = False
    retry: bool = True


class ServeObjects(Message, Request[Ok], frozen=True, array_like=True, tag=354):
    """After `AgentHello`: the connection is for objects alone from now on, as `runtime._transport.bulk` says."""


class ReadObject(Message, frozen=True, array_like=True, tag=350):
    """Asks for part of a sealed object of the other node, which keeps it in place from then on. NOT_FOUND when it has
    none."""

    object_id: bytes
    offset: int
    length: int


class ReadDone(Message, frozen=True, array_like=True, tag=355):
    """Nothing more of the object will be read over this connection."""

    object_id: bytes


class FreeObjects(Message, frozen=True, array_like=True, tag=352):
    object_ids: list[bytes]


class AgentHello(Message, Request[Ok], frozen=True, array_like=True, tag=353):
    """First message between agents, after the secret is proved."""

    node_id: bytes
