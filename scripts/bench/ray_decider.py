"""Ray's autoscaler as the decider of a rehearsal: what the world tells goes to ray_planner.py, what that wants done
comes back as effects."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from traces import Case, Kind

from autoscaler.demand import Demand, Gang, Shape, demand_of
from autoscaler.effects import (
    Create,
    Created,
    Drain,
    Drained,
    Effect,
    Listing,
    Outcome,
    SetUp,
    SetUpEnded,
    Terminate,
    Terminated,
)
from autoscaler.plan import Note
from autoscaler.provider import (
    Capabilities,
    LaunchRequest,
    Machine,
    MachineState,
    MachineTags,
    NodeType,
    Offer,
)
from autoscaler.reconciler import World as Picture
from runtime._core.resources import UNIT
from runtime._wire.messages.base import NodeInfo

Json = dict[str, Any]

SPOT_SUFFIX = "-spot"
TICK_S = 5.0
"""How often Ray's autoscaler looks by default."""


def as_ray_has_it(case: Case) -> Case:
    """The same cluster for Ray, whose node types know no market: a type that may be interruptible becomes two."""
    kinds: list[Kind] = []
    for kind in case.kinds:
        kinds.append(replace(kind, spot=None))
        if kind.spot is not None:
            kinds.append(
                replace(
                    kind, name=kind.name + SPOT_SUFFIX, price=kind.spot, spot=None, least=0, market="spot"
                )
            )
    spot = {kind.name for kind in case.kinds if kind.spot is not None}
    faults: list[Json] = []
    for fault in case.trace.get("faults", ()):
        name = fault.get("node_type")
        if name not in spot:
            faults.append(fault)
            continue
        if fault.get("market") != "on-demand":
            faults.append({**fault, "node_type": name + SPOT_SUFFIX})
        if fault.get("market") != "spot":
            faults.append(fault)
    return replace(case, kinds=tuple(kinds), trace={**case.trace, "faults": faults})


class RayDecider:
    """Runs ray_planner.py with a Python that has Ray. To be closed.

    Args:
        case: as `as_ray_has_it` gave it.
        tick_s: decides at such times only; 0: whenever the world asks, as often as our own autoscaler, except that
            after a refusal it keeps to its own pace.
    """

    def __init__(self, python: str, case: Case, node_types: Sequence[NodeType], tick_s: float = 0.0) -> None:
        self.cpu_s = 0.0
        self._case = case
        self._kinds = {kind.name: kind for kind in node_types}
        self._tick_s = tick_s
        self._last_s = 0.0
        self._put_off = False
        self._restless = False
        self._numbers = itertools.count(1)
        self._tries: dict[str, tuple[str, str, deque[Offer]]] = {}  # token -> request, type, offers left
        self._machine_of: dict[str, str] = {}  # instance, as the node knows it -> machine
        self._news: Json = {}
        self._forget()
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("ray_planner.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say(_ray_config(case))

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()

    # ------------------------------------------------------------ the decider

    def decide(self, picture: Picture, capabilities: Capabilities, now: float) -> Sequence[Effect]:
        effects = [again for outcome in picture.outcomes for again in self._learn(outcome, picture)]
        pause_s = max(self._tick_s, TICK_S if self._news["launch_errors"] else 0.0)
        self._put_off = now < self._last_s + pause_s
        if self._put_off or picture.listing is None:
            return effects
        self._last_s = now
        demand = demand_of(picture.cluster)
        machines = [each for each in picture.listing.machines if each.state is not MachineState.STOPPING]
        nodes = self._nodes(picture.cluster.nodes, machines, demand.gangs, now)
        line = {**self._news, "now": now, "nodes": nodes, "machines": [_machine(each) for each in machines]}
        self._forget()
        self._say({**line, **_wanted(demand)})
        answer = json.loads(self._process.stdout.readline())  # type: ignore[union-attr]
        self.cpu_s += answer["cpu_s"]
        self._restless = self._has_spare(picture) or len(machines) != len(nodes)
        return [*effects, *self._effects(answer, picture, picture.listing)]

    def next_s(self, now: float) -> float | None:
        """Ray looks at the time itself: while a node is idle it must be asked again."""
        if self._put_off:
            return self._last_s + TICK_S
        return now + TICK_S if self._restless else None

    def unserved(self) -> Sequence[Note]:
        return ()

    def happened(self) -> Sequence[str]:
        return ()

    # ------------------------------------------------------------ facts

    def _forget(self) -> None:
        self._news = {"launch_errors": [], "terminate_errors": [], "setup_errors": [], "drain_refused": []}

    def _learn(self, outcome: Outcome, picture: Picture) -> list[Effect]:
        """What came of an effect. A launch that was refused in one zone goes to the next, as Ray's providers do it."""
        if isinstance(outcome, Created):
            request, kind, offers = self._tries.pop(outcome.token)
            refused = len(outcome.result.errors)
            if refused and offers:
                return [self._create(request, kind, refused, offers)]
            if refused:
                self._news["launch_errors"].append((request, kind, refused))
        elif isinstance(outcome, Terminated):
            failed = [key for key, error in outcome.answers.items() if error is not None]
            self._news["terminate_errors"] += failed
        elif isinstance(outcome, SetUpEnded) and outcome.error is not None:
            self._news["setup_errors"].append(outcome.instance_id)
        elif isinstance(outcome, Drained) and outcome.refused:
            self._news["drain_refused"].append(outcome.instance_id)
        return []

    def _nodes(
        self, nodes: Sequence[NodeInfo], machines: Sequence[Machine], gangs: Sequence[Gang], now: float
    ) -> list[Json]:
        there = {each.id for each in machines}
        head = next(each.id for each in machines if each.is_head)
        groups: dict[bytes, list[str]] = {}
        for gang in gangs:
            for node_id in gang.placed:
                if node_id and gang.strategy == "STRICT_SPREAD":
                    groups.setdefault(node_id, []).append(gang.id.hex())
        found = []
        for node in nodes:
            machine = head if node.is_head else self._machine_of.get(node.instance_id, "")
            if machine not in there:
                continue
            is_idle = node.idle_since_s > 0
            status = {"ALIVE": "IDLE" if is_idle else "RUNNING"}.get(node.state, node.state)
            if node.state == "DRAINING" and is_idle:
                status = "DEAD"  # Ray's nodes end by themselves when they are drained
            total, available = _amounts(node.total), _amounts(node.available)
            if node.is_head:
                total, available = ({**each, "node:__internal_head__": 1.0} for each in (total, available))
            found.append(
                {
                    "id": node.node_id.hex(),
                    "machine": machine,
                    "type": node.node_type,
                    "status": status,
                    "total": total,
                    "available": available,
                    "labels": node.labels,
                    "idle_s": now - node.idle_since_s if is_idle else 0.0,
                    "groups": groups.get(node.node_id, []),
                }
            )
        return found

    def _has_spare(self, picture: Picture) -> bool:
        """Whether a node is idle that `min_workers` does not keep."""
        there: dict[str, int] = {}
        idle: set[str] = set()
        for node in picture.cluster.nodes:
            if not node.is_head and node.state != "DEAD":
                there[node.node_type] = there.get(node.node_type, 0) + 1
                if node.idle_since_s > 0:
                    idle.add(node.node_type)
        return any(there[name] > self._kinds[name].min_workers for name in idle)

    # ------------------------------------------------------------ effects

    def _effects(self, answer: Json, picture: Picture, listing: Listing) -> list[Effect]:
        effects: list[Effect] = []
        if answer["terminate"]:
            effects.append(Terminate(tuple(answer["terminate"])))
        for instance, node_id, only_if_idle in answer["drain"]:
            effects.append(Drain(instance, bytes.fromhex(node_id), "", only_if_idle))
        machines = {each.id: each for each in listing.machines}
        for instance, machine_id in answer["setup"]:
            self._machine_of[instance] = machine_id
            machine = machines[machine_id]
            effects.append(SetUp(instance, machine, self._kinds[machine.node_type], ""))
        for request, kind, count in answer["launch"]:
            effects.append(self._create(request, kind, count, deque(picture.offers[kind])))
        return effects

    def _create(self, request: str, kind: str, count: int, offers: deque[Offer]) -> Create:
        offer = offers.popleft()
        token = f"ray-{next(self._numbers)}"
        self._tries[token] = request, kind, offers
        ids = tuple(f"ray-{next(self._numbers)}" for _ in range(count))
        tags = {MachineTags.CLUSTER_ID: self._case.name}
        return Create(LaunchRequest(token, self._kinds[kind], count, offer, tags, ids))

    def _say(self, line: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()


def _ray_config(case: Case) -> Json:
    """The cluster as Ray's YAML has it. Spot first where there is a choice, which Ray calls a priority."""
    types: Json = {"head": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}}
    for kind in case.kinds:
        types[kind.name] = {
            "resources": dict(kind.resources),
            "labels": dict(kind.labels),
            "node_config": {},
            "min_workers": kind.least,
            "max_workers": kind.most,
            "idle_timeout_s": case.idle_timeout_s,
            "priority": int(kind.market == "spot"),
        }
    commands = ("setup", "head_setup", "worker_setup", "initialization", "head_start_ray", "worker_start_ray")
    return {
        "cluster_name": case.name,
        "max_workers": case.max_workers,
        "upscaling_speed": case.upscaling_speed,
        "idle_timeout_minutes": case.idle_timeout_s / 60.0,
        "provider": {"type": "external", "module": "simulated"},
        "auth": {},
        "available_node_types": types,
        "head_node_type": "head",
        "file_mounts": {},
        "cluster_synced_files": [],
        **{f"{name}_commands": [] for name in commands},
    }


def _machine(machine: Machine) -> Json:
    running = machine.state is MachineState.RUNNING
    return {"id": machine.id, "type": machine.node_type, "running": running, "head": machine.is_head}


def _wanted(demand: Demand) -> Json:
    return {
        "shapes": [[*_request(shape), count] for shape, count in demand.shapes],
        "gangs": [
            {
                "id": gang.id.hex(),
                "strategy": gang.strategy,
                "bundles": [[_amounts(dict(one.resources)), dict(one.selector)] for one in gang.missing],
            }
            for gang in demand.gangs
        ],
        "requested": [
            [_amounts(dict(shape.resources)), dict(shape.selector)]
            for shape, count in demand.explicit
            for _ in range(count)
        ],
    }


def _request(shape: Shape) -> tuple[Json, list[dict[str, str]]]:
    selectors = [dict(selector) for selector in (shape.selector, *shape.fallbacks) if selector]
    return _amounts(dict(shape.resources)), selectors


def _amounts(units: dict[str, int]) -> Json:
    return {name: amount / UNIT for name, amount in units.items()}
