"""Short ways to write down what the autoscaler's tests are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autoscaler.config import AutoscalerConfig
from autoscaler.demand import Demand, Gang, Shape
from autoscaler.instances import Instance, InstanceState
from autoscaler.offerings import Offerings, market_of
from autoscaler.plan import Plan
from autoscaler.provider import Machine, MachineState, MachineTags, NodeType, Offer
from autoscaler.snapshot import Snapshot, profile_of
from runtime._core.resources import to_units
from runtime._wire.messages.base import NodeInfo

NOW = 10_000.0
HEAD = NodeType("head", {"CPU": 1})
SMALL = NodeType("small", {"CPU": 2}, max_workers=10)
BIG = NodeType("big", {"CPU": 8}, max_workers=10)
GPU = NodeType("gpu", {"CPU": 8, "GPU": 2}, max_workers=10)


def config(*kinds: NodeType, **more: Any) -> AutoscalerConfig:
    more.setdefault("max_workers", 100)
    more.setdefault("idle_timeout_s", 60.0)
    return AutoscalerConfig("cluster", "name", (HEAD, *kinds), "head", **more)


def shape(selector: Mapping[str, str] | None = None, **amounts: float) -> Shape:
    return Shape.of(to_units(amounts), selector)


def gang(strategy: str, *bundles: Shape, id: int = 1, placed: tuple[bytes, ...] = ()) -> Gang:
    return Gang(f"{id:018d}".encode(), strategy, bundles, placed)


def node(
    name: str,
    kind: NodeType = SMALL,
    *,
    state: str = "ALIVE",
    free: Mapping[str, float] | None = None,
    idle_since_s: float = 0.0,
    instance_id: str | None = None,
    is_head: bool = False,
    total: Mapping[str, float] | None = None,
    death_reason: str = "",
) -> NodeInfo:
    """A node whose id is `name`, on the instance of that name unless told otherwise."""
    amounts = to_units(kind.resources if total is None else total)
    return NodeInfo(
        name.encode(),
        state,
        "",
        "",
        "",
        "",
        is_head,
        "",
        amounts,
        amounts if free is None else to_units(free),
        dict(kind.labels),
        death_reason,
        idle_since_s,
        name if instance_id is None else instance_id,
        kind.name,
    )


def instance(
    name: str, kind: NodeType | str = SMALL, state: InstanceState = InstanceState.RUNNING, **more: Any
) -> Instance:
    """An instance with a machine and, when it runs, a node of the same name."""
    has_machine = state not in (InstanceState.QUEUED, InstanceState.REQUESTED)
    more.setdefault("machine_id", f"m-{name}" if has_machine else "")
    more.setdefault("allocated_s", NOW - 100 if has_machine else 0.0)
    if state in (InstanceState.RUNNING, InstanceState.DRAINING):
        more.setdefault("node_id", name.encode())
        more.setdefault("joined_s", NOW - 50)
    more.setdefault("since_s", NOW - 50)
    more.setdefault("token", "token")
    return Instance(name, kind if isinstance(kind, str) else kind.name, state, **more)


def machine(
    name: str,
    kind: NodeType = SMALL,
    state: MachineState = MachineState.RUNNING,
    *,
    id: str | None = None,
    role: str = MachineTags.WORKER,
    cluster: str = "cluster",
) -> Machine:
    """The machine `m-<name>` of the instance `name`."""
    tags = {
        MachineTags.CLUSTER_ID: cluster,
        MachineTags.ROLE: role,
        MachineTags.INSTANCE_ID: name,
        MachineTags.NODE_TYPE: kind.name,
    }
    return Machine(id or f"m-{name}", state, kind.name, tags, address="10.0.0.1")


def running(name: str, kind: NodeType = SMALL, **more: Any) -> tuple[Instance, NodeInfo]:
    """A running instance with its node."""
    return instance(name, kind), node(name, kind, **more)


def snapshot(
    settings: AutoscalerConfig,
    *pairs: tuple[Instance, NodeInfo],
    shapes: Sequence[tuple[Shape, int]] = (),
    gangs: Sequence[Gang] = (),
    explicit: Sequence[tuple[Shape, int]] = (),
    instances: Sequence[Instance] = (),
    nodes: Sequence[NodeInfo] = (),
    offers: Mapping[str, Sequence[Offer]] | None = None,
    penalties: Offerings | None = None,
    pinned: Sequence[bytes] = (),
    **more: Any,
) -> Snapshot:
    return Snapshot(
        now=NOW,
        config=settings,
        demand=Demand(tuple(shapes), tuple(gangs), tuple(explicit), frozenset(pinned)),
        nodes=(*(info for _, info in pairs), *nodes),
        instances=(*(one for one, _ in pairs), *instances),
        markets={
            kind.name: market_of(kind, offers or {}, penalties or Offerings(), NOW)
            for kind in settings.node_types
        },
        profiles={kind.name: profile_of(kind, ()) for kind in settings.node_types},
        **more,
    )


def launched(result: Plan) -> dict[str, int]:
    """How many machines of each type a plan launches."""
    counts: dict[str, int] = {}
    for launch in result.launches:
        counts[launch.node_type] = counts.get(launch.node_type, 0) + launch.count
    return counts
