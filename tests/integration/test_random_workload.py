"""Random tasks, actors and groups on a cluster whose nodes come and go: the accounts stay true, and what fits runs."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import runtime as ray
from runtime import exceptions
from runtime._api.cluster_view import _nodes
from runtime._core.resources import UNIT, fits, to_units
from runtime._wire.messages.base import NodeInfo
from runtime.cluster_utils import Cluster
from runtime.util.placement_group import PlacementGroup, placement_group, placement_group_table
from runtime.util.placement_group import remove_placement_group as remove_group
from runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from runtime.util.state import list_actors
from tests.polling import eventually

NAMES = ("CPU", "GPU", "disk")
ROUNDS = 5


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        ray.init(address=made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@ray.remote(max_retries=-1)
def work(number: int) -> int:
    time.sleep(0.01)
    return number


@ray.remote(max_restarts=-1, max_task_retries=-1)
class Holder:
    def ping(self) -> int:
        return 1


class Workload:
    """What was started, and whether the cluster's accounts agree with it."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.tasks: dict[Any, tuple[int, dict[str, int]]] = {}
        self.actors: dict[str, tuple[Any, dict[str, int], PlacementGroup | None]] = {}
        self.groups: list[PlacementGroup] = []
        self._number = 0

    # ------------------------------------------------------------ events

    def add_node(self) -> None:
        gpus = self.rng.choice((0, 2))
        self.cluster.add_node(
            num_cpus=self.rng.randint(1, 4), num_gpus=gpus, resources={"disk": self.rng.randint(1, 3)}
        )

    def kill_node(self) -> None:
        if len(self.cluster.worker_nodes) > 1:
            self.cluster.remove_node(self.rng.choice(self.cluster.worker_nodes), allow_graceful=False)

    def start_tasks(self) -> None:
        for _ in range(self.rng.randint(1, 20)):
            options, needs = self._needs()
            self._number += 1
            strategy = self.rng.choice(("DEFAULT", "SPREAD"))
            ref = work.options(scheduling_strategy=strategy, **options).remote(self._number)
            self.tasks[ref] = self._number, needs

    def start_actor(self) -> None:
        options, needs = self._needs()
        group = None
        if self.groups and self.rng.random() < 0.4:
            group = self.rng.choice(self.groups)
            needs = to_units(self.rng.choice(group.bundle_specs))
            options = {
                "num_cpus": needs.get("CPU", 0) / UNIT,
                "num_gpus": needs.get("GPU", 0) / UNIT,
                "resources": {"disk": needs["disk"] / UNIT} if "disk" in needs else {},
                "scheduling_strategy": PlacementGroupSchedulingStrategy(group),
            }
        actor = Holder.options(**options).remote()
        self.actors[actor._actor_id.hex()] = actor, needs, group

    def end_actor(self) -> None:
        if self.actors:
            actor, _, _ = self.actors.pop(self.rng.choice(sorted(self.actors)))
            if self.rng.random() < 0.5:
                ray.kill(actor)

    def make_group(self) -> None:
        amounts = [{"CPU": 1}, {"CPU": 0.5, "disk": 1}, {"CPU": 1, "GPU": 1}, {"CPU": 2}]
        bundles = self.rng.choices(amounts, k=self.rng.randint(1, 3))
        strategy = self.rng.choice(("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"))
        self.groups.append(placement_group(bundles, strategy))

    def end_group(self) -> None:
        if self.groups:
            group = self.groups.pop(self.rng.randrange(len(self.groups)))
            remove_group(group)
            self.actors = {key: held for key, held in self.actors.items() if held[2] is not group}

    def _needs(self) -> tuple[dict[str, Any], dict[str, int]]:
        cpus = self.rng.choice((0, 0.25, 1, 1, 2, 5))
        gpus = self.rng.choice((0, 0, 0, 0.5, 1))
        disk = self.rng.choice((0, 0, 0.3, 1))
        options = {"num_cpus": cpus, "num_gpus": gpus, "resources": {"disk": disk}}
        return options, to_units({"CPU": cpus, "GPU": gpus, "disk": disk})

    # ------------------------------------------------------------ what must hold

    def violations(self) -> list[str]:
        """What is not as it should be, when nothing moves any more."""
        nodes = [node for node in _nodes() if node.state != "DEAD"]
        return [*self._of_tasks(nodes), *self._of_actors_and_groups(nodes)]

    def _of_tasks(self, nodes: list[NodeInfo]) -> Iterator[str]:
        if not self.tasks:
            return
        done, waiting = ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=0.2)
        for ref in done:
            number, _ = self.tasks.pop(ref)
            assert ray.get(ref) == number
        for ref in waiting:
            if any(fits(self.tasks[ref][1], node.available) for node in nodes):
                yield f"task {self.tasks[ref]} waits although it fits"

    def _of_actors_and_groups(self, nodes: list[NodeInfo]) -> Iterator[str]:
        held: Counter[str] = Counter()
        states = {actor.actor_id: actor.state for actor in list_actors(limit=10_000)}
        alive_groups = set()
        for group in self.groups:
            row = placement_group_table(group)
            if row["state"] == "CREATED":
                alive_groups.add(group.id)
                for bundle in group.bundle_specs:
                    held.update(to_units(bundle))
            elif row["state"] == "RESCHEDULING":
                for index, node_id in row["bundles_to_node_id"].items():
                    if node_id:
                        held.update(to_units(group.bundle_specs[index]))
            elif len(group.bundle_specs) == 1 and any(
                fits(to_units(group.bundle_specs[0]), n.available) for n in nodes
            ):
                yield f"group {group.bundle_specs} is {row['state']} although it fits"
        for key, (actor, needs, group) in self.actors.items():
            if states[key] == "ALIVE":
                ref = actor.ping.remote()
                if ray.wait([ref], timeout=2)[0]:
                    assert ray.get(ref) == 1
                else:  # nobody knew of the end of its node yet
                    yield f"actor {key} does not answer"
                if group is None:
                    held.update(needs)
            elif states[key] == "DEAD":
                yield f"actor {key} with {needs} is dead"
            elif group is None and any(fits(needs, node.available) for node in nodes):
                yield f"actor {key} with {needs} is {states[key]} although it fits"
        for name in NAMES:
            total = sum(node.total.get(name, 0) for node in nodes)
            free = [node.available.get(name, 0) for node in nodes]
            if min(free) < 0 or sum(free) != total - held[name]:
                yield f"{name}: {free} are free of {total}, {held[name]} held"
        for name in {name for node in nodes for name in node.total if "_group_" in name}:
            if not any(group.id.hex() in name for group in self.groups):
                yield f"{name} is left of a group that is gone"


@pytest.mark.parametrize("seed", [1, 2])
def test_accounts_of_a_changing_cluster(cluster: Cluster, seed: int) -> None:
    load = Workload(cluster, random.Random(seed))
    for _ in range(2):
        load.add_node()
    events = [load.start_tasks] * 4 + [load.start_actor] * 5 + [load.end_actor] * 2
    events += [load.make_group] * 3 + [load.end_group] * 2 + [load.add_node, load.kill_node]
    for number in range(ROUNDS):
        for event in load.rng.choices(events, k=8):
            event()
        last: list[str] = []

        def settled(last: list[str] = last) -> bool:
            last[:] = load.violations()
            return not last

        assert eventually(settled), f"seed {seed}, round {number}: {last}"
    for group in load.groups:
        remove_group(group)
    for actor, _, _ in load.actors.values():
        ray.kill(actor)
    for ref in load.tasks:
        ray.cancel(ref)
    for ref, (number, _) in load.tasks.items():
        try:
            assert ray.get(ref, timeout=60) == number  # it fitted when the actors were gone
        except exceptions.TaskCancelledError:
            pass
    load.actors, load.groups, load.tasks = {}, [], {}
    assert eventually(lambda: not load.violations()), load.violations()
