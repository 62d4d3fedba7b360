"""The limits of growth: machines per type and in all, their price, the pace."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autoscaler.config import AutoscalerConfig
from autoscaler.instances import IN_FLIGHT, Instance, InstanceState
from autoscaler.provider import NodeType

PACE_FLOOR = 5
"""So many of a type may be started at once however slow the pace is."""
PACE_S = 5.0
"""For so long a started machine counts against the pace, once nodes of its type run."""


@dataclass(slots=True)
class Limits:
    """What may still be launched. A plan takes from it as it goes."""

    config: AutoscalerConfig
    by_type: dict[str, int] = field(default_factory=dict)
    total: int = 0
    hourly_price: float = 0.0
    kinds: Mapping[str, NodeType] = field(init=False)

    def __post_init__(self) -> None:
        self.kinds = {kind.name: kind for kind in self.config.node_types}

    @classmethod
    def of(cls, config: AutoscalerConfig, instances: Iterable[Instance]) -> Limits:
        limits = cls(config)
        for instance in instances:
            if instance.is_counted:
                limits.take(instance.node_type, 1, instance.offer.price)
        return limits

    def room(self, node_type: str, price: float = 0.0) -> int:
        """How many more machines of the type are allowed."""
        kind = self.kinds.get(node_type)
        if kind is None:
            return 0
        room = min(kind.max_workers - self.by_type.get(node_type, 0), self.config.max_workers - self.total)
        most = self.config.budgets.max_hourly_price
        if most is not None and price > 0:
            room = min(room, math.floor((most - self.hourly_price) / price + 1e-9))
        return max(0, room)

    def take(self, node_type: str, count: int, price: float = 0.0) -> None:
        self.by_type[node_type] = self.by_type.get(node_type, 0) + count
        self.total += count
        self.hourly_price += price * count

    def copy(self) -> Limits:
        return Limits(self.config, dict(self.by_type), self.total, self.hourly_price)

    def why(self, node_type: str, price: float = 0.0) -> str:
        """Which limit is reached, for the operator; "" when there is room."""
        kind = self.kinds.get(node_type)
        if kind is None:
            return f"node type {node_type!r} does not exist"
        if kind.max_workers <= self.by_type.get(node_type, 0):
            return f"max_workers {kind.max_workers} of node type {node_type!r} is reached"
        if self.config.max_workers <= self.total:
            return f"the cluster's max_workers {self.config.max_workers} is reached"
        if self.room(node_type, price) <= 0:
            return f"the price budget {self.config.budgets.max_hourly_price:g} per hour is reached"
        return ""


def pace(config: AutoscalerConfig, instances: Iterable[Instance], now: float) -> dict[str, int]:
    """Per type, how many more may be started now.

    Before the first node of a type has joined, all that are on their way count: a type that does not work must not
    cost more than that. Then only those of the last seconds do: growth need not wait for a boot again and again.
    """
    running = count_by_type(instances, frozenset({InstanceState.RUNNING}))
    flying: dict[str, int] = {}
    for instance in instances:
        if instance.state in IN_FLIGHT:
            wished_s = instance.history[0].at_s if instance.history else instance.since_s
            if now - wished_s < PACE_S or not running.get(instance.node_type):
                flying[instance.node_type] = flying.get(instance.node_type, 0) + 1
    return {
        kind.name: max(
            0,
            max(PACE_FLOOR, math.ceil(config.upscaling_speed * max(1, running.get(kind.name, 0))))
            - flying.get(kind.name, 0),
        )
        for kind in config.node_types
    }


def count_by_type(instances: Iterable[Instance], states: frozenset[InstanceState]) -> Mapping[str, int]:
    """How many instances of each type are in `states`."""
    counts: dict[str, int] = {}
    for instance in instances:
        if instance.state in states:
            counts[instance.node_type] = counts.get(instance.node_type, 0) + 1
    return counts
