"""How many tasks, how large blocks, which budget: from bytes, cores and the object stores. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

MIB = 1 << 20
STORE_SHARE = 8
"""A data set may hold this part of the object stores, unless its limits say otherwise."""
LEAST_BUDGET = 16 * MIB
TASKS_PER_CORE = 2
"""With fewer, one slow task at the end leaves the other cores without work."""
UNKNOWN_PARTITIONS = 128
"""Of exchanges whose input may be of any size."""
LEAST_PIECE = MIB // 4
"""Smaller objects cost more than to bring them back from disk as a part of a larger one."""
BLOCKS_IN_BUDGET = 4
"""So many blocks for each core fit into the budget, so that no core waits for credit."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the cluster. `cpus_of`: by node id."""

    cpus: float
    store_bytes: int
    cpus_of: Mapping[str, float] = field(default_factory=dict)


def without(facts: Facts, cpus: float | None, store_bytes: float | None) -> Facts:
    """What a data set sees if so much is kept for others."""
    return replace(
        facts,
        cpus=max(1.0, facts.cpus - (cpus or 0.0)),
        store_bytes=max(0, facts.store_bytes - int(store_bytes or 0)),
    )


def task_slots(facts: Facts, free: Facts, limit: float | None) -> float:
    """How many CPUs the tasks of an execution may take at a time: one more than there are, so that no CPU waits for a
    task, unless some are kept for others.

    Args:
        free: without what is kept for others.
        limit: of the data set.
    """
    cpus = min(free.cpus, limit or free.cpus)
    return cpus if cpus < facts.cpus else cpus + 1


def budget(facts: Facts, limit: float | None, executions: int = 1) -> int:
    """Bytes of blocks that one of several executions may hold."""
    if limit is not None:
        return max(1, int(limit))
    return max(LEAST_BUDGET, facts.store_bytes // STORE_SHARE // max(1, executions))


def target_bytes(facts: Facts, budget_bytes: int, most: int | None) -> int:
    """How large blocks should be."""
    fitting = budget_bytes // (BLOCKS_IN_BUDGET * max(1, int(facts.cpus)))
    return max(MIB // 4, min(most or 128 * MIB, fitting))


def exchange_bytes(facts: Facts, target: int, most: int | None) -> int:
    """How large the objects of an exchange should be. Larger than blocks: each reducer reads from each of them."""
    fitting = facts.store_bytes // (BLOCKS_IN_BUDGET * max(1, int(facts.cpus)))
    return max(target, min(most or 128 * MIB, fitting))


def read_tasks(facts: Facts, size_bytes: int | None, target: int, least: int | None = None) -> int:
    """How many tasks should read a source."""
    wanted = TASKS_PER_CORE * max(1, int(facts.cpus))
    if size_bytes is not None:
        wanted = max(wanted, -(-size_bytes // target))
    return max(wanted, least or 1)


def share(facts: Facts, size_bytes: int, most: int) -> int:
    """How many of so many bytes one task should get, so that all cores have work."""
    return max(1, min(most, -(-size_bytes // (TASKS_PER_CORE * max(1, int(facts.cpus))))))


def partitions(facts: Facts, size_bytes: int | None, target: int, blocks: int | None = None) -> int:
    """Into how many parts an exchange splits the rows; neighbours are put together again where they are small.

    Args:
        blocks: the number is a multiple of this.
    """
    cores = max(1, int(facts.cpus))
    known = max(TASKS_PER_CORE * cores, -(-2 * (size_bytes or 0) // target))
    wanted = min(max(known, UNKNOWN_PARTITIONS if size_bytes is None else 8), 1024)
    return -(-wanted // blocks) * blocks if blocks else wanted


def map_objects(facts: Facts, size_bytes: int | None, parts: int) -> int:
    """Into how many objects a map cuts each block at most: one, unless the store may have to move some to disk. See
    `pieces`."""
    fits = size_bytes is not None and size_bytes <= facts.store_bytes // 3
    return 1 if fits else parts


def pieces(size_bytes: int, most: int) -> int:
    """Into how many objects a map cuts a block of so many bytes."""
    return max(1, min(most, size_bytes // LEAST_PIECE))
