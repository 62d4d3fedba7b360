"""What runs on the nodes, and whether it could run elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.demand import Shape
from runtime._wire.messages.control import ClusterState, Holding


@dataclass(frozen=True, slots=True)
class Load:
    """What holds a node: the leases of its workers, as counted shapes.

    Attributes:
        bound_by: what holds it and cannot go elsewhere: a driver, an actor, a placement group, objects, a task
            that names the node; "" when nothing does.
    """

    shapes: tuple[tuple[Shape, int], ...] = ()
    bound_by: str = ""


def loads_of(state: ClusterState) -> Mapping[bytes, Load]:
    """By node id; idle nodes are left out."""
    return {holding.node_id: _load(holding) for holding in state.holdings}


def _load(holding: Holding) -> Load:
    shapes: dict[Shape, int] = {}
    bound_by = holding.bound_by
    for held in holding.held:
        strategy = held.request.strategy
        if strategy.kind == "NODE_AFFINITY" and not strategy.soft:
            bound_by = bound_by or "a task that names it"
        shape = Shape.of(held.request.resources, strategy.labels, strategy.fallbacks)
        shapes[shape] = shapes.get(shape, 0) + held.count
    return Load(tuple(shapes.items()), bound_by)
