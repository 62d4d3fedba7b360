"""What code of the user can ask about the replica that it runs in, and about the request that it answers.

`runtime.serve` exports `get_replica_context`, `get_multiplexed_model_id` and `get_trace_context`.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import Any

import msgspec

DEFAULT_APP_NAME = "default"


class DeploymentID(msgspec.Struct, frozen=True):
    """A deployment of an application."""

    name: str
    app_name: str = DEFAULT_APP_NAME

    def __str__(self) -> str:
        return f"Deployment(name='{self.name}', app='{self.app_name}')"


class ReplicaID(msgspec.Struct, frozen=True):
    """A replica of a deployment."""

    unique_id: str
    deployment_id: DeploymentID

    @classmethod
    def parse(cls, text: str) -> ReplicaID:
        """From `app#deployment#unique`, as messages and records have it.

        Raises:
            ValueError: it does not have three parts.
        """
        app, deployment, unique = text.split("#")
        return cls(unique, DeploymentID(deployment, app))

    def to_full_id_str(self) -> str:
        """As status pages and the names of actors show it."""
        parts = [self.deployment_id.app_name, self.deployment_id.name, self.unique_id]
        return "SERVE_REPLICA::" + "#".join(part for part in parts if part)

    def __str__(self) -> str:
        deployment = self.deployment_id
        return f"Replica(id='{self.unique_id}', deployment='{deployment.name}', app='{deployment.app_name}')"


class ReplicaRank(msgspec.Struct, frozen=True):
    """Where a replica stands among those of its deployment. Ranks begin at 0 and have no gaps.

    Attributes:
        rank: among all.
        node_rank: of its node among the nodes with replicas.
        local_rank: among those of its node.
    """

    rank: int
    node_rank: int = 0
    local_rank: int = 0


class GangContext(msgspec.Struct, frozen=True):
    """The gang that a replica is part of."""

    gang_id: str
    rank: int
    world_size: int
    member_replica_ids: list[str]
    pg_name: str = ""


class ReplicaContext(msgspec.Struct):
    """The replica that the calling code runs in.

    Attributes:
        replica_id: see `ReplicaID`.
        servable_object: the instance of the user's class, or the user's function. None while the constructor runs.
        rank: see `ReplicaRank`.
        world_size: how many replicas the deployment is to have.
        gang_context: of a replica in a gang, else None.
        code_version: two replicas with the same one run the same code and arguments.
        max_ongoing_requests: how many requests it may run at once.
    """

    replica_id: ReplicaID
    servable_object: Any
    rank: ReplicaRank
    world_size: int
    gang_context: GangContext | None = None
    code_version: str | None = None
    max_ongoing_requests: int = 5

    @property
    def app_name(self) -> str:
        """The application."""
        return self.replica_id.deployment_id.app_name

    @property
    def deployment(self) -> str:
        """The name of the deployment."""
        return self.replica_id.deployment_id.name

    @property
    def replica_tag(self) -> str:
        """The part of the id that is the replica's own."""
        return self.replica_id.unique_id


class Deadline:
    """The time limit of a request of the ingress.

    Attributes:
        at_s: its end, on `time.monotonic()`.
        limit_s: how long it was at first.
        is_met: the request was answered in time: what its code has left running has no limit.
    """

    __slots__ = ("at_s", "is_met", "limit_s")

    def __init__(self, limit_s: float) -> None:
        self.at_s = time.monotonic() + limit_s
        self.limit_s = limit_s
        self.is_met = False


class RequestContext(msgspec.Struct, frozen=True):
    """The request that the calling code answers.

    Attributes:
        route: its route's prefix; "" for calls by a handle.
        request_id: as in logs and in the header x-request-id.
        app_name: the application that was asked first.
        multiplexed_model_id: "" for none.
        grpc_context: of a gRPC request.
        is_http_request: whether it came by HTTP.
        trace: headers of a distributed trace.
        _deadline: when its client gives up; None for never. Calls that its code makes have it, too.
    """

    route: str = ""
    request_id: str = ""
    _internal_request_id: str = ""
    app_name: str = ""
    multiplexed_model_id: str = ""
    session_id: str = ""
    grpc_context: Any = None
    is_http_request: bool = False
    _client: str = ""
    trace: dict[str, str] = {}
    _deadline: Deadline | None = None


_NO_REQUEST = RequestContext()
_serve_request_context: ContextVar[RequestContext] = ContextVar("serve_request", default=_NO_REQUEST)
_serve_batch_request_context: ContextVar[list[RequestContext]] = ContextVar("serve_batch_requests")

_local_replica: ContextVar[ReplicaContext | None] = ContextVar("serve_local_replica", default=None)
_replica: ReplicaContext | None = None


def set_replica(context: ReplicaContext | None) -> None:
    """Tells which replica this process is."""
    global _replica
    _replica = context


def set_local_replica(context: ReplicaContext) -> None:
    """Tells which replica the calling thread or coroutine, and all that it starts, is: in local testing mode one
    process has several."""
    _local_replica.set(context)


def current_replica() -> ReplicaContext | None:
    """The replica that the caller runs in; None outside of replicas."""
    return _local_replica.get() or _replica


def current_request() -> RequestContext:
    """The request that the caller answers; one without ids outside of requests."""
    return _serve_request_context.get()


def current_batch() -> list[RequestContext]:
    """The requests of the batch that the caller works on; empty outside of functions with `@serve.batch`."""
    return _serve_batch_request_context.get([])


_get_serve_request_context = current_request
_get_internal_replica_context = current_replica


def get_replica_context() -> ReplicaContext:
    """The replica that the calling code runs in.

    Raises:
        RayServeException: the caller is not in a replica.
    """
    replica = current_replica()
    if replica is None:
        raise serve_error(
            "`serve.get_replica_context()` may only be called in a replica of a deployment. Call it in the "
            "deployment's constructor or methods."
        )
    return replica


def get_multiplexed_model_id() -> str:
    """The model that the current request asks for, by the header `serve_multiplexed_model_id` or the handle's option;
    "" for none. In a function with `@serve.batch` the one that all requests of the batch have in common."""
    batch = current_batch()
    return batch[0].multiplexed_model_id if batch else current_request().multiplexed_model_id


def get_trace_context() -> Any:
    """The OpenTelemetry context of the current request, to be the parent of new spans; None if the request is not
    traced or OpenTelemetry is not installed."""
    trace = current_request().trace
    if not trace:
        return None
    try:
        from opentelemetry import propagate  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    return propagate.extract(trace)


def serve_error(message: str) -> Exception:
    """A `RayServeException`, whose module is loaded only here."""
    from runtime.serve.exceptions import RayServeException

    return RayServeException(message)
