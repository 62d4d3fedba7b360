"""What must hold of the control store and its agents: after every turn of the loop, and once all is quiet."""

from __future__ import annotations

import random
from collections.abc import Iterable

from runtime._control.server import ControlStore
from runtime._core.actors import ActorState
from runtime._core.placement import Fit, NodeView, choose_node, group_resources, place_bundles
from runtime._core.placement_groups import GroupState
from runtime._core.resources import Resources, add
from runtime._wire.messages.control import GetNodes, ListActors
from runtime._wire.messages.groups import ListPlacementGroups
from tests.sim.control.agent import Agent


class Watcher:
    """Checks after every turn; remembers what must never be undone."""

    def __init__(self) -> None:
        self.dead: set[bytes] = set()
        self.removed: set[bytes] = set()
        self.versions: dict[bytes, int] = {}

    def check(self, store: ControlStore, agents: Iterable[Agent]) -> None:
        """Raises AssertionError naming what is wrong."""
        living = [agent for agent in agents if not agent.is_crashed]
        for agent in living:
            for name, amount in agent.available.items():
                assert amount >= 0, f"{agent.node_id!r} gave away more {name} than it has: {amount}"
        processes: dict[bytes, bytes] = {}
        for agent in living:
            if agent.is_member:
                for actor_id in agent.actors:
                    other = processes.setdefault(actor_id, agent.node_id)
                    assert other == agent.node_id, f"actor {actor_id.hex()} runs twice"
        names: set[tuple[str, str]] = set()
        for info in store.actors.list_actors(None, ListActors()).actors:  # type: ignore[arg-type]
            spec = info.spec
            assert info.version >= self.versions.get(info.actor_id, 0), "a version went back"
            self.versions[info.actor_id] = info.version
            if info.state == ActorState.DEAD.value:
                self.dead.add(info.actor_id)
                assert info.address is None
                continue
            assert info.actor_id not in self.dead, f"actor {info.actor_id.hex()} rose from the dead"
            assert (info.state == ActorState.ALIVE.value) == (info.address is not None)
            if spec.max_restarts >= 0:
                assert info.restarts <= spec.max_restarts, "more restarts than allowed"
            if spec.name:
                assert (spec.namespace, spec.name) not in names, f"two living actors named {spec.name}"
                names.add((spec.namespace, spec.name))
        for group in store.groups.list_groups(None, ListPlacementGroups()).groups:  # type: ignore[arg-type]
            if group.state == GroupState.REMOVED.value:
                self.removed.add(group.pg_id)
                continue
            assert group.pg_id not in self.removed, "a removed group came back"
            if group.state == GroupState.CREATED.value:
                assert all(group.nodes), "a created group has a bundle without a node"
            if group.strategy == "STRICT_SPREAD":
                placed = [node_id for node_id in group.nodes if node_id]
                assert len(placed) == len(set(placed)), "STRICT_SPREAD put two bundles on one node"
            if group.strategy == "STRICT_PACK":
                assert len({node_id for node_id in group.nodes if node_id}) <= 1, "STRICT_PACK spread"


def check_quiet(store: ControlStore, agents: Iterable[Agent]) -> None:
    """When nothing moves any more, records and reality are the same."""
    living = {agent.node_id: agent for agent in agents if not agent.is_crashed}
    nodes = store.nodes.get_nodes(None, GetNodes()).nodes  # type: ignore[arg-type]
    alive = {node.node_id for node in nodes if node.state != "DEAD"}
    assert alive == living.keys(), "the store and the agents disagree on who lives"
    for node in nodes:
        if node.state != "DEAD":
            agent = living[node.node_id]
            assert node.available == agent.available, (node.available, agent.available)
            assert node.total == agent.total
    _check_actors(store, living)
    _check_groups(store, living)
    for agent in living.values():
        used: Resources = dict(agent.available)
        for running in agent.actors.values():
            add(used, running.held)
        for bundle in agent.bundles.values():
            add(used, bundle.resources)
        assert used == agent.total, f"{agent.node_id!r} leaks: {used} of {agent.total}"


def check_nothing_starves(store: ControlStore, agents: Iterable[Agent]) -> None:
    """When nothing moves any more, whatever waits cannot be placed."""
    views = [
        NodeView(agent.node_id, agent.total, agent.available, agent.labels)
        for agent in agents
        if not agent.is_crashed
    ]
    rng = random.Random(0)
    for info in store.actors.list_actors(None, ListActors()).actors:  # type: ignore[arg-type]
        if info.state in (ActorState.PENDING_CREATION.value, ActorState.RESTARTING.value):
            fit = choose_node(
                info.spec.placement.strategy.request(info.spec.placement.resources), views, rng=rng
            ).fit
            assert fit in (Fit.WAITING, Fit.INFEASIBLE), f"actor {info.actor_id.hex()} waits, but is {fit}"
    for group in store.groups.list_groups(None, ListPlacementGroups()).groups:  # type: ignore[arg-type]
        if group.state in (GroupState.PENDING.value, GroupState.RESCHEDULING.value):
            nodes = place_bundles(group.bundles, group.strategy, views, rng=rng, placed=group.nodes)
            assert nodes is None, f"group {group.pg_id.hex()} waits, but would fit"
        else:
            assert group.state != GroupState.PREPARED.value, "a group is stuck between the phases"


def _check_actors(store: ControlStore, living: dict[bytes, Agent]) -> None:
    really = {
        actor_id: (agent.node_id, running.address)
        for agent in living.values()
        for actor_id, running in agent.actors.items()
    }
    recorded = {}
    for info in store.actors.list_actors(None, ListActors()).actors:  # type: ignore[arg-type]
        if info.state == ActorState.ALIVE.value:
            recorded[info.actor_id] = (info.node_id, info.address)
    assert recorded == really, "the store and the agents disagree on the actors"
    assert not any(agent.starting for agent in living.values())


def _check_groups(store: ControlStore, living: dict[bytes, Agent]) -> None:
    offered = {
        (pg_id, index): agent.node_id
        for agent in living.values()
        for (pg_id, index), bundle in agent.bundles.items()
        if bundle.committed
    }
    set_aside = [
        key for agent in living.values() for key, bundle in agent.bundles.items() if not bundle.committed
    ]
    assert not set_aside, f"bundles set aside and forgotten: {set_aside}"
    recorded = {}
    for group in store.groups.list_groups(None, ListPlacementGroups()).groups:  # type: ignore[arg-type]
        for index, node_id in enumerate(group.nodes):
            if node_id:
                recorded[group.pg_id, index] = node_id
                names = group_resources(group.bundles[index], group.pg_id.hex(), index)
                assert names.keys() <= living[node_id].total.keys()
    assert recorded == offered, "the store and the agents disagree on the bundles"
