"""Collective groups of actors, made and destroyed by the process that has their handles."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from runtime import exceptions
from runtime._extension.actors import results
from runtime.util import collective
from runtime.util.collective.group import Group
from runtime.util.collective.types import Backend


class CommunicatorHandle:
    """A group, for the process that made it.

    Attributes:
        name: of the group, for `runtime.util.collective`.
        backend: "GLOO" or another one.
    """

    def __init__(self, actors: Sequence[Any], name: str, backend: str) -> None:
        self._actors = list(actors)
        self.name = name
        self.backend = Backend(backend)

    @property
    def actors(self) -> list[Any]:
        """The members' handles, by rank."""
        return list(self._actors)

    def get_rank(self, actor: Any) -> int:
        """The rank of an actor; -1: it is no member."""
        return self._actors.index(actor) if actor in self._actors else -1


_handles: dict[str, CommunicatorHandle] = {}


def get_collective_groups(
    actors: Sequence[Any] | None = None, backend: str | None = None
) -> list[CommunicatorHandle]:
    """The groups made by this process in which all of these actors are, of this backend if one is given."""
    chosen = None if backend is None else Backend(backend)
    wanted = set(actors or ())
    return [one for one in _handles.values() if wanted.issubset(one.actors) and chosen in (None, one.backend)]


def create_collective_group(
    actors: Sequence[Any], backend: str, name: str | None = None
) -> CommunicatorHandle:
    """Makes actors a group, with their order as ranks. All have joined when this returns.

    Args:
        backend: see `runtime.util.collective.init_collective_group`.
        name: unique in the job; one is made up by default.

    Raises:
        RuntimeError: an actor is in a group of this backend already, or the name is taken.
        ValueError: an actor is given twice, or there is no such backend.
        RayError: an actor is dead, or cannot use the backend.
    """
    name = name or uuid.uuid4().hex
    backend = Backend(backend)
    if len(set(actors)) != len(actors):
        raise ValueError(f"All actors must be unique, got: {list(actors)}")
    for actor in actors:
        if get_collective_groups([actor], backend):
            raise RuntimeError(
                f"Actor {actor} already in group for backend {backend}. Actors can currently only participate in at "
                "most one group per backend."
            )
    collective.create_collective_group(actors, len(actors), list(range(len(actors))), backend, name)
    handle = CommunicatorHandle(actors, name, backend)
    try:
        results([actor.__ray_call__.remote(_join, name) for actor in actors])
    except BaseException:
        _leave_all(handle)
        raise
    _handles[name] = handle
    return handle


def destroy_collective_group(group_or_name: CommunicatorHandle | str) -> None:
    """Ends a group; its actors can join another one then.

    Raises:
        ValueError: this process has made no such group.
    """
    if not isinstance(group_or_name, CommunicatorHandle | str):
        raise ValueError("Expected CommunicatorHandle or str (group name).")
    name = group_or_name if isinstance(group_or_name, str) else group_or_name.name
    handle = _handles.pop(name, None)
    if handle is None:
        raise ValueError(f"No group with name {name} found.")
    _leave_all(handle)


def destroy_all_collective_groups() -> None:
    """Ends all groups that this process has made."""
    for name in list(_handles):
        destroy_collective_group(name)


def _leave_all(handle: CommunicatorHandle) -> None:
    collective.destroy_collective_group(handle.name)  # the declaration
    for left in [actor.__ray_call__.remote(_leave, handle.name) for actor in handle.actors]:
        try:
            results([left])
        except exceptions.RayActorError:
            pass  # it has left that way


def _join(_actor: Any, name: str) -> None:
    if isinstance(collective.get_group_handle(name), Group):
        collective.barrier(name)  # all are connected, so that two can send to each other without the others


def _leave(_actor: Any, name: str) -> None:
    collective.destroy_collective_group(name)
