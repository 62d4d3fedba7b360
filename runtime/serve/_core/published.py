"""What the controller publishes under keys of the control store, for the ingress and all handles: they follow the keys,
so traffic goes on while there is no controller."""

from __future__ import annotations

from typing import Any

import msgspec

NAMESPACE = "serve"
"""Of keys and named actors."""
CONTROLLER = "SERVE_CONTROLLER_ACTOR"
ROUTES = b"routes"


def targets_key(app: str, deployment: str) -> bytes:
    """The key of a deployment's `Targets`."""
    return f"targets\0{app}\0{deployment}".encode()


class Target(msgspec.Struct, frozen=True):
    """A replica that takes requests.

    Attributes:
        replica: its id, `app#deployment#unique`.
        token: what callers show it.
        node: id of its node, in hex; `unix` can be reached from there only.
        unix: name of its socket; it begins with a zero byte where it is in Linux's abstract namespace. "" for none.
        host, port: the same by TCP, for other nodes.
        slots: its max_ongoing_requests.
    """

    replica: str
    token: bytes
    node: str
    unix: str
    host: str
    port: int
    slots: int
    zone: str = ""


class Targets(msgspec.Struct, frozen=True):
    """Where requests to a deployment go.

    Attributes:
        epoch: grows with each version that is published.
        state: "running"; "gone" once it is deleted; "failed" if it can serve nobody, `message` tells why.
        most_queued: max_queued_requests; -1 for no limit.
        scales: whether the controller wants to hear of queued requests (autoscaling).
        router: cloudpickle of its RequestRouterConfig, or b"" for the default one.
        backpressure: see `DeploymentOptions`.
    """

    epoch: int
    state: str
    replicas: list[Target]
    most_queued: int = -1
    scales: bool = False
    router: bytes = b""
    message: str = ""
    backpressure: dict[str, Any] = {}


class Route(msgspec.Struct, frozen=True):
    """Requests below `prefix` go to `deployment` of `app`."""

    prefix: str
    app: str
    deployment: str


class Routes(msgspec.Struct, frozen=True):
    """All routes, and the applications without one, which gRPC reaches by their names."""

    epoch: int
    routes: list[Route]
    apps: dict[str, str] = {}  # application -> its ingress deployment


def dump(value: Targets | Routes) -> bytes:
    """For the store."""
    return msgspec.msgpack.encode(value)


def load_targets(data: bytes) -> Targets:
    """From the store."""
    return msgspec.msgpack.decode(data, type=Targets)


def load_routes(data: bytes) -> Routes:
    """From the store."""
    return msgspec.msgpack.decode(data, type=Routes)


REPEAT_S = 5.0
"""How often loads and demands are told again that are not zero: the controller may be another one by now."""


class Demand(msgspec.Struct, frozen=True):
    """What a caller tells the controller of deployments that scale: how many requests wait there, per
    (application, deployment); a deployment that is left out has none. Told when it changes, at most every 0.1 s; at
    once when the first one waits; again every `REPEAT_S` while any wait."""

    caller: str
    queued: dict[tuple[str, str], int]


class Load(msgspec.Struct, frozen=True):
    """What a replica tells the controller if its deployment scales: when it changes, and again every `REPEAT_S` while
    requests run.

    Attributes:
        ongoing: requests that run.
        metrics: of `record_autoscaling_stats`.
    """

    replica: str
    ongoing: int
    metrics: dict[str, Any] = {}
