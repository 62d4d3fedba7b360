"""What every message shares: a frozen, array-like, tagged `msgspec.Struct`.

Rules: fields are only ever appended, with a default; tags are never reused. A `Request[R]` is answered by exactly one
`R` or by an `ErrorReply`; every other message is one-way.
"""

from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from runtime._core.placement import Request as PlacementRequest
from runtime._system import interpreter

R_co = TypeVar("R_co", covariant=True)


if TYPE_CHECKING:

    class Request(Generic[R_co]):
        """Marks a message that is called and answered by an `R_co`."""

else:

    class Request:
        """Subscripted as the other, but no `Generic`: such classes are costly to make, and to look through for msgspec,
        at the start of every process."""

        __slots__ = ()
        __class_getitem__ = classmethod(GenericAlias)


class Message(msgspec.Struct, frozen=True, array_like=True, gc=interpreter.TRACK_RECORDS):
    """Base of all messages."""


class Ok(Message, frozen=True, array_like=True, tag=1):
    """The plain positive answer."""


class ErrorReply(Message, frozen=True, array_like=True, tag=2):
    """The negative answer. `kind` is one of the constants in `ErrorKind`, `message` says what to do."""

    kind: str
    message: str


class ErrorKind:
    """The values of `ErrorReply.kind`."""

    INVALID = "invalid"  # the request itself is wrong; do not repeat it
    NOT_FOUND = "not_found"
    EXISTS = "exists"
    CLASH = "clash"  # two owners have made objects with one id
    BUSY = "busy"  # no room now; ask elsewhere or later
    CAPPED = "capped"  # as BUSY, for tasks of this class alone
    UNAVAILABLE = "unavailable"  # the peer is gone or restarting; repeat later
    TIMEOUT = "timeout"
    FULL = "full"  # the object store is full
    OUT_OF_DISK = "out_of_disk"  # the object store is full, and so is the disk it spills to
    LOST = "lost"  # no copy of the object is left
    RUNTIME_ENV = "runtime_env"
    SETUP_HOOK = "setup_hook"  # of a runtime environment: it raised
    INTERNAL = "internal"


class WorkerAddress(Message, frozen=True, array_like=True, gc=interpreter.TRACK_RECORDS):
    """Where a driver or worker process listens. On its own node use `unix_path`, elsewhere `host:port`."""

    # It refers to no containers, so the garbage collector need not visit records that hold one either (see `History`).
    worker_id: bytes  # 28 bytes
    node_id: bytes  # 28 bytes
    unix_path: str
    host: str = ""
    port: int = 0


class SchedulingStrategy(Message, frozen=True, array_like=True):
    """How a node is chosen for a task, an actor or a lease.

    Placement groups need no kind of their own here: the submitter rewrites the resources of the request to the
    bundle's (`CPU_group_<index>_<pg hex>`), and only nodes that hold the bundle have those.
    """

    kind: str = "DEFAULT"  # DEFAULT (hybrid) | SPREAD | NODE_AFFINITY
    node_id: bytes = b""  # NODE_AFFINITY only
    soft: bool = False  # NODE_AFFINITY: fall back to DEFAULT when the node is dead or cannot fit
    labels: dict[str, str] = {}  # label selector, hard: key -> condition, see `runtime._core.labels`
    busy: str = "WAIT"  # NODE_AFFINITY, while the node has no room: WAIT | SPILL (elsewhere) | FAIL
    preferred: dict[str, str] = {}  # label selector, soft
    fallbacks: list[dict[str, str]] = []  # further hard selectors, tried in order

    def request(self, resources: dict[str, int]) -> PlacementRequest:
        """The request for `resources` as placement takes it."""
        return PlacementRequest(
            resources,
            self.kind,
            self.node_id,
            self.soft,
            self.labels,
            self.busy,
            self.preferred,
            tuple(self.fallbacks),
        )


class ResourceRequest(Message, frozen=True, array_like=True):
    """What one lease, actor or bundle needs. Amounts are integers in 1/10 000 units."""

    resources: dict[str, int]
    strategy: SchedulingStrategy = SchedulingStrategy()
    placement_group_id: bytes = b""  # 18 bytes when the request lives in a group


class NodeInfo(Message, frozen=True, array_like=True):
    """One node as the control store knows it."""

    node_id: bytes
    state: str  # ALIVE | DRAINING | DEAD
    address: str  # host:port of the node agent's TCP listener
    unix_path: str  # the agent's Unix socket, for processes of the same host
    host: str
    host_name: str
    is_head: bool
    session_dir: str
    total: dict[str, int]  # resources, 1/10 000 units
    available: dict[str, int]
    labels: dict[str, str]
    death_reason: str = ""
    idle_since_s: float = 0.0  # unix time since when nothing holds the node; 0 while busy
    instance_id: str = ""  # the autoscaler's name of the machine, given at start; "" when started by hand
    node_type: str = ""
    started_s: float = 0.0
    store_path: str = ""
    metrics_port: int = 0
    name: str = ""  # what its user calls it; "": its host
    store_used_bytes: int = 0
    left: bool = False  # it ended on request
    deadline_ms: int = 0  # when the machine of a draining node goes, in Unix time; 0: not known


class Demand(Message, frozen=True, array_like=True):
    """`count` equal requests that wait for a node. `infeasible`: no node of today could ever hold one."""

    request: ResourceRequest
    count: int
    infeasible: bool = False
