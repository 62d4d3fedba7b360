"""A reconciler whose facts a test sets by hand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

from autoscaler.config import AutoscalerConfig
from autoscaler.effects import Create, Effect, Listing, Outcome
from autoscaler.memory import Memory
from autoscaler.provider import Capabilities, Machine, MachineState, Offer
from autoscaler.reconciler import Reconciler, World
from runtime._core.resources import to_units
from runtime._wire.messages.base import Demand, NodeInfo, ResourceRequest
from runtime._wire.messages.control import ClusterState, Holding
from tests.autoscaler.build import NOW


class Rig:
    """A reconciler with facts that a test sets by hand."""

    def __init__(
        self,
        settings: AutoscalerConfig,
        memory: Memory | None = None,
        rng: random.Random | None = None,
        **capabilities: Any,
    ) -> None:
        self.listed_s: float | None = None
        self.closed: dict[str, str] = {}
        numbers = itertools.count(1)
        self.reconciler = Reconciler(
            settings, Capabilities(**capabilities), memory=memory, new_id=lambda: f"n{next(numbers)}", rng=rng
        )
        self.now = NOW
        self.nodes: list[NodeInfo] = []
        self.machines: list[Machine] | None = []
        self.demands: list[Demand] = []
        self.holdings: list[Holding] = []
        self.offers: dict[str, Sequence[Offer]] = {}

    def tick(self, *outcomes: Outcome, after_s: float = 1.0) -> list[Effect]:
        self.now += after_s
        listed_s = self.now if self.listed_s is None else self.listed_s
        listing = None if self.machines is None else Listing(listed_s, tuple(self.machines))
        state = ClusterState(1, self.now, self.nodes, self.demands, [], [], holdings=self.holdings)
        return self.reconciler.step(World(state, listing, outcomes, self.offers, self.closed), self.now)

    def want(self, cpus: float, count: int = 1) -> None:
        self.demands = [Demand(ResourceRequest(to_units({"CPU": cpus})), count)] if count else []

    def states(self) -> dict[str, str]:
        return {i.id: i.state.name for i in self.reconciler.table}

    def machines_for(self, effect: Create, state: MachineState = MachineState.RUNNING) -> tuple[Machine, ...]:
        request = effect.request
        return tuple(
            Machine(f"m-{request.instance_ids[i]}", state, request.node_type.name, request.tags_of(i))
            for i in range(request.count)
        )


def one_create(effects: list[Effect]) -> Create:
    (effect,) = effects
    assert isinstance(effect, Create)
    return effect
