"""The control store's view of the nodes: what agents reported, less what was promised since.

Agents report what is free; a request sent to an agent (start an actor, prepare a bundle) is deducted at
once, as a `Charge`, so that the next placement does not count on the same room. Messages of one agent
arrive in order, so its answer tells which reports include the request: those that follow. Of a report that
comes while the answer is out, it is assumed to include charges older than `ABSORB_S`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from runtime._core.fsm import Machine
from runtime._core.nodes import TRANSITIONS, NodeEvent, NodeState
from runtime._core.placement import NodeView
from runtime._core.resources import add, subtract
from runtime._transport.channel import Channel
from runtime._wire.messages.base import Demand, NodeInfo
from runtime._wire.messages.control import NodeReport

ABSORB_S = 0.1
"""Agents report changes at least every 50 ms."""


@dataclass(slots=True, eq=False)
class Charge:
    """Resources promised to one request that is on its way to an agent."""

    resources: Mapping[str, int]
    made_s: float
    refused: bool = False


class Node:
    """One node: its state, its connection, and the view that placement sees."""

    def __init__(self, info: NodeInfo, now: float, grace_s: float) -> None:
        self.info = info
        self.machine: Machine[NodeState, NodeEvent] = Machine(
            f"node {info.node_id.hex()[:12]}", NodeState(info.state), TRANSITIONS
        )
        self.is_dead = self.machine.state is NodeState.DEAD
        self.view = NodeView(info.node_id, dict(info.total), {}, info.labels)
        self.told: tuple[dict[str, int], dict[str, int]] | None = (
            None  # what agents know of total and available
        )
        self.channel: Channel | None = None
        self.demands: list[Demand] = []
        self.noted: list[tuple[str, str]] | None = None  # what its agent knows of reasons why these wait
        self.held: list[Demand] = []
        self.bound_by = ""
        self.heard_s = now
        self.lost_s: float | None = now
        self.grace_s = grace_s
        self._charges: dict[int, Charge] = {}

    @property
    def node_id(self) -> bytes:
        return self.info.node_id

    @property
    def state(self) -> NodeState:
        return self.machine.state

    @property
    def has_promises(self) -> bool:
        """Whether a request on its way may make the node busy."""
        return bool(self._charges)

    def connected(self, channel: Channel, info: NodeInfo, now: float) -> None:
        """Its agent registered, for the first time or again."""
        self.channel = channel
        self.info = msgspec.structs.replace(info, state=self.state.value, deadline_ms=self.info.deadline_ms)
        self.heard_s = now
        self.lost_s = None
        self.noted = None
        self._charges.clear()
        self.view.total = dict(info.total)
        self.view.available = dict(info.available)
        self.view.labels = info.labels

    def disconnected(self, now: float, grace_s: float) -> None:
        """Its connection broke: nothing can be placed there, but it still counts as a node."""
        self.channel = None
        self.lost_s = now
        self.grace_s = grace_s
        self._charges.clear()
        self.view.available = {}

    def step(self, event: NodeEvent, now: float, deadline_ms: int = 0) -> None:
        """Moves the state machine. `deadline_ms`: see `NodeInfo`; 0: what is known stays, until the node resumes."""
        state = self.machine.step(event, now)
        known_ms = 0 if state is NodeState.ALIVE else deadline_ms or self.info.deadline_ms
        self.info = msgspec.structs.replace(self.info, state=state.value, deadline_ms=known_ms)
        self.view.schedulable = state is NodeState.ALIVE
        self.is_dead = state is NodeState.DEAD
        if state is NodeState.DEAD:
            self._charges.clear()
            self.demands = []
            self.view.available = {}

    def report(self, report: NodeReport, now: float) -> bool:
        """Takes a report in; returns whether what is free or there changed."""
        self.heard_s = now
        self.demands = report.demands
        self.held, self.bound_by = report.held, report.bound_by
        for key, charge in list(self._charges.items()):
            if charge.refused:
                del self._charges[key]
        available = dict(report.available)
        for charge in self._charges.values():
            if now - charge.made_s < ABSORB_S:
                subtract(available, charge.resources)
        # Against our view, so that waiting requests are retried; and against what agents were sent and plan by.
        changed = (
            available != self.view.available
            or report.total != self.view.total
            or self.told != (report.total, available)
        )
        self.view.total = dict(report.total)
        self.view.available = available
        self.info = msgspec.structs.replace(
            self.info, idle_since_s=report.idle_since_s, store_used_bytes=report.store_used_bytes
        )
        return changed

    def charge(self, resources: Mapping[str, int], now: float) -> Charge:
        """Deducts what a request is about to ask of the agent."""
        charge = Charge(resources, now)
        self._charges[id(charge)] = charge
        subtract(self.view.available, resources)
        return charge

    def charge_answered(self, charge: Charge, kept: Mapping[str, int]) -> None:
        """The agent answered: of the charge only `kept` is held there from now on."""
        if self._charges.pop(id(charge), None) is not None:
            add(self.view.available, charge.resources)
            subtract(self.view.available, kept)

    def refuse(self, charge: Charge) -> None:
        """The agent has no such room: believe it until its next report (or `forgive`)."""
        charge.refused = True

    def forgive(self, charge: Charge) -> None:
        """Ends a refusal that no report ended."""
        self.charge_answered(charge, {})

    def offer(self, resources: Mapping[str, int]) -> None:
        """The agent now offers these names too (a committed bundle)."""
        add(self.view.total, resources)
        add(self.view.available, resources)

    def withdraw(self, resources: Mapping[str, int], back: Mapping[str, int]) -> None:
        """The agent no longer offers `resources` and has `back` again (a returned bundle)."""
        for name, amount in resources.items():
            held = self.view.total.get(name, 0)
            subtract(self.view.total, {name: min(held, amount)})
            free = self.view.available.get(name, 0)
            subtract(self.view.available, {name: min(free, amount)})
        add(self.view.available, back)

    def snapshot(self) -> NodeInfo:
        """The node as messages describe it."""
        idle_since_s = 0.0 if self._charges else self.info.idle_since_s
        return msgspec.structs.replace(
            self.info,
            total=dict(self.view.total),
            available=dict(self.view.available),
            idle_since_s=idle_since_s,
        )


class Cluster:
    """Every node of the cluster's life, dead ones included (the last `MAX_DEAD` of them)."""

    MAX_DEAD = 1000

    def __init__(self) -> None:
        self._nodes: dict[bytes, Node] = {}

    def get(self, node_id: bytes) -> Node | None:
        return self._nodes.get(node_id)

    def is_living(self, node_id: bytes) -> bool:
        """Whether it is a member that is not dead."""
        node = self._nodes.get(node_id)
        return node is not None and not node.is_dead

    def add(self, node: Node) -> None:
        """Adds or replaces a node."""
        self._nodes[node.node_id] = node

    def forget_dead(self) -> list[bytes]:
        """Drops the oldest dead nodes beyond the bound and returns their ids."""
        dead = [node.node_id for node in self._nodes.values() if node.is_dead]
        surplus = dead[: max(0, len(dead) - self.MAX_DEAD)]
        for node_id in surplus:
            del self._nodes[node_id]
        return surplus

    def all(self) -> Iterable[Node]:
        return self._nodes.values()

    def living(self) -> list[Node]:
        return [node for node in self._nodes.values() if not node.is_dead]

    def views(self) -> list[NodeView]:
        """What placement may look at; live views, do not change them."""
        return [node.view for node in self._nodes.values() if not node.is_dead]
