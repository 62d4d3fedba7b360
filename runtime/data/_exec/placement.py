"""Who gets the CPUs: the actors of pools and the tasks that feed them. Pure.

An actor takes no CPU of the cluster unless the user gives it some: as it keeps what it has, the tasks before and after
it could wait for a CPU for ever. The execution counts busy actors among its tasks instead (`state`), and the actors are
spread over the nodes here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from runtime.data._plan.nodes import Compute, Node

from .sizing import Facts


def kept_cpus(plan: Node) -> float:
    """What the actors of all pools of a plan keep at least."""
    return sum(
        compute.pool.least * actor_cpus(compute) for compute in _computes(plan) if compute.pool is not None
    )


def actor_cpus(compute: Compute) -> float:
    """What an actor takes of the cluster's CPUs."""
    return float(compute.options.get("num_cpus") or 0.0)


def busy_cpus(compute: Compute) -> float:
    """What a busy actor counts among the tasks of its data set: as a task, unless it works on a GPU."""
    if compute.options.get("num_cpus") is not None:
        return actor_cpus(compute)
    return 0.0 if compute.options.get("num_gpus") else 1.0


def task_cpus(facts: Facts, kept: float) -> float:
    """What a task takes unless the user says so: a CPU, or what pools leave if that is less."""
    return max(0.0, min(1.0, facts.cpus - kept))


def most_actors(facts: Facts, compute: Compute, kept: float) -> int:
    """How large a pool may become: actors that keep CPUs leave one for tasks, beyond the least sizes of all pools."""
    pool = compute.pool
    assert pool is not None
    most = pool.most or max(pool.least, int(facts.cpus))
    cpus = actor_cpus(compute)
    if not cpus:
        return most
    return min(most, pool.least + max(0, int((facts.cpus - 1 - kept) / cpus)))


def node_of(cpus_of: Mapping[str, float], number: int) -> str | None:
    """The node of the n-th actor, so that each node has actors in proportion to its CPUs; None if no node has any."""
    counts = {node: 0 for node, cpus in sorted(cpus_of.items()) if cpus >= 1}
    if not counts:
        return None
    for _ in range(number % int(sum(cpus_of[node] for node in counts)) + 1):
        chosen = max(counts, key=lambda node: cpus_of[node] / (counts[node] + 1))
        counts[chosen] += 1
    return chosen


def is_placed(options: Mapping[str, Any]) -> bool:
    """Whether the user says where actors run."""
    return any(
        options.get(name) for name in ("num_gpus", "num_cpus", "resources", "memory", "label_selector")
    ) or ("scheduling_strategy" in options)


def _computes(plan: Node) -> Iterator[Compute]:
    """Those of all nodes; a node that several read from counts once."""
    found = {id(plan): plan}
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        for each in fields(node):
            value = getattr(node, each.name)
            if isinstance(value, Compute):
                yield value
        for source in node.inputs:
            if id(source) not in found:
                found[id(source)] = source
                waiting.append(source)
