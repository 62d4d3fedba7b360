"""How much of a machine is kept for the engine's own processes, as values of control groups (version 2). Pure.

Its processes and those of the program share the machine: the workers of a node can take all of its CPUs and memory, and
a node agent that gets no CPU for seconds counts as dead.
"""

from __future__ import annotations

import msgspec

DEFAULT_PATH = "/sys/fs/cgroup"
CONTROLLERS = ("cpu", "memory")
MIN_CPUS = 1.0
MAX_DEFAULT_CPUS = 3.0
DEFAULT_CPU_SHARE = 0.05
MIN_BYTES = 500 << 20
MAX_DEFAULT_BYTES = 10 << 30
DEFAULT_MEMORY_SHARE = 0.1
TOTAL_WEIGHT = 10_000
"""The largest value of cpu.weight."""


class Isolation(msgspec.Struct, frozen=True):
    """The control groups of one node: one of its own below `path`, and two in that.

    Attributes:
        path: an existing group.
        controllers: what the groups need of it.
        node: files of the node's group and their values.
        system: those of the group of the daemons.
        workers: those of the group of the workers.
    """

    path: str
    controllers: tuple[str, ...]
    node: dict[str, str]
    system: dict[str, str]
    workers: dict[str, str]


def plan(
    path: str | None,
    cpus: float | None,
    memory_bytes: int | None,
    store_bytes: int,
    machine_cpus: int,
    machine_bytes: int,
) -> Isolation:
    """The groups that keep so much for the engine.

    Args:
        path: None: `DEFAULT_PATH`.
        cpus: None: 5 % of the machine's, at least 1 and at most 3.
        memory_bytes: None: 10 % of the machine's, at least 500 MiB and at most 10 GiB.
        store_bytes: the size of the object store, if it is given.

    Raises:
        ValueError: it is too little, or more than there is.
    """
    if cpus is None:
        cpus = min(MAX_DEFAULT_CPUS, max(MIN_CPUS, DEFAULT_CPU_SHARE * machine_cpus))
    if memory_bytes is None:
        memory_bytes = min(MAX_DEFAULT_BYTES, max(MIN_BYTES, int(DEFAULT_MEMORY_SHARE * machine_bytes)))
    if cpus < MIN_CPUS:
        raise ValueError(
            f"The requested system_reserved_cpu={cpus} is less than the minimum, which is {MIN_CPUS}."
        )
    if cpus >= machine_cpus:
        raise ValueError(
            f"The requested system_reserved_cpu={cpus} leaves nothing for tasks: it must be less than the number of "
            f"CPUs of this machine, which is {machine_cpus}."
        )
    if memory_bytes < MIN_BYTES:
        raise ValueError(
            f"The requested system_reserved_memory={memory_bytes} is less than the minimum, which is {MIN_BYTES} bytes."
        )
    if memory_bytes + store_bytes > machine_bytes:
        raise ValueError(
            f"The requested system_reserved_memory={memory_bytes} and the object store of {store_bytes} bytes are more "
            f"than the memory of this machine, which is {machine_bytes} bytes."
        )
    weight = min(max(1, round(TOTAL_WEIGHT * cpus / machine_cpus)), TOTAL_WEIGHT - 1)
    kept = {"memory.min": str(memory_bytes)}  # a group is protected as far as the one around it is
    return Isolation(
        path or DEFAULT_PATH,
        CONTROLLERS,
        kept,
        {"cpu.weight": str(weight), **kept},
        {"cpu.weight": str(TOTAL_WEIGHT - weight)},
    )
