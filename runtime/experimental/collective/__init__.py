"""Collective groups that a driver makes of actors, and collective operations in graphs; see `groups`, `operations`."""

from .groups import (
    CommunicatorHandle,
    create_collective_group,
    destroy_all_collective_groups,
    destroy_collective_group,
    get_collective_groups,
)
from .operations import allgather, allreduce, reducescatter

__all__ = [
    "CommunicatorHandle",
    "allgather",
    "allreduce",
    "create_collective_group",
    "destroy_all_collective_groups",
    "destroy_collective_group",
    "get_collective_groups",
    "reducescatter",
]
