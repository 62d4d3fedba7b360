"""The groups of which this process is a member, and those that a driver has declared."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.experimental import internal_kv
from runtime.runtime_context import get_runtime_context
from runtime.util import get_node_ip_address

from .backend_registry import RegisteredGroup, is_available, registered
from .group import Group
from .links import NAMESPACE, Links, who_am_i
from .types import Backend

Member = Group | RegisteredGroup
_lock = threading.Lock()
_groups: dict[str, Member] = {}


def find(group_name: str) -> Member | None:
    """The group, if this process is a member."""
    return _groups.get(group_name)


def find_or_join(group_name: str) -> Member:
    """The group; a member that was declared joins now.

    Raises:
        RuntimeError: this process is no member.
    """
    group = _groups.get(group_name)
    if group is not None:
        return group
    with _lock:
        group = _groups.get(group_name)
        if group is not None:
            return group
        actor_id = get_runtime_context().get_actor_id()
        declared = actor_id and internal_kv._internal_kv_get(_key(group_name), namespace=NAMESPACE)
        if declared:
            known = json.loads(declared)
            rank = known["members"].get(actor_id)
            if rank is not None:
                actors = {rank: actor for actor, rank in known["members"].items()}
                backend = known["backend"]
                return _join(group_name, known["world_size"], rank, backend, known["timeout_s"], actors)
    raise RuntimeError(
        f"The collective group '{group_name}' is not initialized in the process: call init_collective_group() here, "
        "or create_collective_group() with this actor."
    )


def has_backend(backend: str) -> bool:
    """Whether this process is in a group of a backend."""
    return any(isinstance(group, Group) and group.backend == backend for group in list(_groups.values()))


def shared_with(actor_id: str, backend: str) -> tuple[Group, int] | None:
    """A group of a backend that this process and an actor are in, and the actor's rank; None: there is none."""
    for group in list(_groups.values()):
        if isinstance(group, Group) and group.backend == backend:
            rank = group.rank_of(actor_id)
            if rank is not None:
                return group, rank
    return None


def join(group_name: str, world_size: int, rank: int, backend: str, timeout_s: float) -> None:
    """Makes this process a member.

    Raises:
        RuntimeError: it is one already, the backend is not available, or the arguments do not fit.
        ValueError: there is no such backend, or no name.
    """
    backend = Backend(backend)
    if not group_name:
        raise ValueError(f"group_name '{group_name}' needs to be a string.")
    if world_size <= 0 or not 0 <= rank < world_size:
        raise RuntimeError(
            f"Rank {rank} is out of range: the ranks of a group of {world_size} are 0 to {world_size - 1}."
        )
    with _lock:
        if group_name in _groups:
            raise RuntimeError("Trying to initialize a group twice.")
        _join(group_name, world_size, rank, backend, timeout_s, {})


def declare(
    actors: Sequence[Any],
    world_size: int,
    ranks: Sequence[int],
    backend: str,
    group_name: str,
    timeout_s: float,
) -> None:
    """Makes actors members; they join with their first operation.

    Raises:
        RuntimeError: the group is declared already, or the arguments do not fit.
        ValueError: there is no such backend.
    """
    backend = Backend(backend)  # whether it is available is seen where the members are
    if world_size <= 0:
        raise RuntimeError(f"World size must be greater than zero. Got '{world_size}'.")
    if len(ranks) != len(actors):
        raise RuntimeError(
            f"Each actor should have one rank, and there are {len(ranks)} ranks for {len(actors)} actors."
        )
    if set(ranks) != set(range(len(ranks))):
        raise RuntimeError(
            f"Ranks must be a permutation of 0 to {len(ranks) - 1}, and they are {', '.join(map(str, ranks))}."
        )
    members = {actor._actor_id.hex(): rank for actor, rank in zip(actors, ranks, strict=True)}
    declared = json.dumps(
        {"members": members, "world_size": world_size, "timeout_s": timeout_s, "backend": backend}
    )
    if internal_kv._internal_kv_put(_key(group_name), declared, overwrite=False, namespace=NAMESPACE):
        raise RuntimeError("Trying to initialize a group twice.")


def leave(group_name: str) -> None:
    """Leaves a group, if this process is a member, and removes its declaration."""
    with _lock:
        group = _groups.pop(group_name, None)
    if group is not None:
        group.destroy_group()
    internal_kv._internal_kv_del(_key(group_name), namespace=NAMESPACE)


def _join(
    group_name: str,
    world_size: int,
    rank: int,
    backend: str,
    timeout_s: float,
    declared: Mapping[int, str],
) -> Member:
    if not is_available(backend):
        why = " It needs torch with NCCL, and a GPU of this process." if backend == Backend.NCCL else ""
        raise RuntimeError(f"{backend} is not available in this process.{why}")
    group: Member
    group_cls = registered(backend)
    if group_cls is not None:
        group = RegisteredGroup(group_cls(world_size, rank, group_name))
    else:
        who = who_am_i(get_runtime_context(), get_node_ip_address())
        links = Links(group_name, _key(group_name), world_size, rank, who, declared, timeout_s)
        if backend == Backend.NCCL:
            from .nccl_group import NcclGroup

            group = NcclGroup(group_name, links, world_size, rank, backend)
        else:
            group = Group(group_name, links, world_size, rank)
    _groups[group_name] = group
    return group


def _key(group_name: str) -> str:
    return f"{get_runtime_context().get_job_id()}:{group_name}"
