"""Collective communication of actors and tasks: numpy arrays and torch tensors in main memory, in place.

Every member of a group calls the same operations in the same order. Tensors travel through the object store: each
member puts its own, the members exchange references (`Meeting`), and each reads the tensors it needs, without a copy on
the same node. Results are written into the caller's tensors; `tensors.fill` describes the case of read-only ones.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

from runtime import api
from runtime._owner import context
from runtime._process.core_worker import current
from runtime.experimental import internal_kv

from .meeting import Meeting
from .tensors import check_equal, fill, view_of
from .types import Backend, ReduceOp

_NAMESPACE = "collective groups"
_local = threading.Lock()


class _Group:
    """This process's membership of one group."""

    def __init__(self, name: str, world_size: int, rank: int, timeout_s: float) -> None:
        self.world_size = world_size
        self.rank = rank
        options = {
            "name": f"{name} of job {current().job_id.hex()}",
            "namespace": _NAMESPACE,
            "get_if_exists": True,
            "num_cpus": 0,
            "max_concurrency": 10_000,
        }
        self.meeting: Any = api.remote(Meeting).options(**options).remote(world_size, timeout_s)
        self._rounds = 0
        self._sent: dict[tuple[int, int], int] = {}

    def meet(self, value: Any) -> list[Any]:
        """What the members brought, by rank; None for those that brought None."""
        self._rounds += 1
        ref = None if value is None else [api.put(value)]
        brought = api.get(self.meeting.meet.remote(self._rounds, self.rank, ref))
        # Nobody lets go of a tensor before all have their references: `meet` returned the references themselves.
        return [None if one is None else one[0] for one in brought]

    def next_letter(self, sender: int, receiver: int) -> int:
        """The number of the next message from one member to another."""
        number = self._sent.get((sender, receiver), 0)
        self._sent[sender, receiver] = number + 1
        return number


_groups: dict[str, _Group] = {}


def gloo_available() -> bool:
    """Whether groups in main memory are available: yes."""
    return True


def nccl_available() -> bool:
    """Whether groups of GPUs are available: no."""
    return False


def is_group_initialized(group_name: str = "default") -> bool:
    """Whether this process is a member."""
    return group_name in _groups


def init_collective_group(
    world_size: int,
    rank: int,
    backend: str = "gloo",
    group_name: str = "default",
    gloo_timeout: int = 30_000,
) -> None:
    """Makes this process the member `rank` of a group.

    Args:
        world_size: the number of members.
        rank: from 0.
        backend: "gloo".
        group_name: unique in the job.
        gloo_timeout: milliseconds that an operation waits for the other members.

    Raises:
        RuntimeError: this process is already a member, or `world_size` and `rank` do not fit.
    """
    Backend(backend)
    if not group_name:
        raise ValueError(f"group_name '{group_name}' needs to be a string.")
    if world_size <= 0 or not 0 <= rank < world_size:
        raise RuntimeError(
            f"Rank {rank} is out of range: the ranks of a group of {world_size} are 0 to {world_size - 1}."
        )
    with _local:
        if group_name in _groups:
            raise RuntimeError("Trying to initialize a group twice.")
        _groups[group_name] = _Group(group_name, world_size, rank, gloo_timeout / 1000)


def create_collective_group(
    actors: Sequence[Any],
    world_size: int,
    ranks: Sequence[int],
    backend: str = "gloo",
    group_name: str = "default",
    gloo_timeout: int = 30_000,
) -> None:
    """Makes `actors` the members of a group; they join with their first operation.

    Raises:
        RuntimeError: the group already exists, or `world_size` and `ranks` do not fit.
    """
    Backend(backend)
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
    declared = json.dumps({"members": members, "world_size": world_size, "timeout_s": gloo_timeout / 1000})
    if internal_kv._internal_kv_put(_key(group_name), declared, overwrite=False, namespace=_NAMESPACE):
        raise RuntimeError("Trying to initialize a group twice.")


def destroy_collective_group(group_name: str = "default") -> None:
    """Removes this process from the group, and the declaration of the group."""
    with _local:
        _groups.pop(group_name, None)
    internal_kv._internal_kv_del(_key(group_name), namespace=_NAMESPACE)


def get_rank(group_name: str = "default") -> int:
    """This process's rank; -1 if it is not a member."""
    group = _groups.get(group_name)
    return group.rank if group is not None else -1


def get_collective_group_size(group_name: str = "default") -> int:
    """The number of members; -1 if this process is not one of them."""
    group = _groups.get(group_name)
    return group.world_size if group is not None else -1


def _key(group_name: str) -> str:
    return f"{current().job_id.hex()}:{group_name}"


def _group(group_name: str) -> _Group:
    with _local:
        group = _groups.get(group_name)
        if group is not None:
            return group
        declared = internal_kv._internal_kv_get(_key(group_name), namespace=_NAMESPACE)
        running = context.execution.get()
        if declared is not None and running is not None and running.actor_id:
            known = json.loads(declared)
            rank = known["members"].get(running.actor_id.hex())
            if rank is not None:
                group = _Group(group_name, known["world_size"], rank, known["timeout_s"])
                _groups[group_name] = group
                return group
    raise RuntimeError(
        f"The collective group '{group_name}' is not initialized in the process: call init_collective_group() here, "
        "or create_collective_group() with this actor."
    )


# ---------------------------------------------------------------- operations


def allreduce(tensor: Any, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Replaces every member's tensor by the reduction of all."""
    view = view_of(tensor)
    fill(view, _reduced("allreduce", _read(_group(group_name).meet(view)), op, view))


def reduce(tensor: Any, dst_rank: int = 0, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Replaces the tensor of member `dst_rank` by the reduction of all."""
    group, view = _group(group_name), view_of(tensor)
    _check_rank(group, dst_rank)
    refs = group.meet(view)
    if group.rank == dst_rank:
        fill(view, _reduced("reduce", _read(refs), op, view))


def broadcast(tensor: Any, src_rank: int = 0, group_name: str = "default") -> None:
    """Replaces every member's tensor by that of `src_rank`."""
    group, view = _group(group_name), view_of(tensor)
    _check_rank(group, src_rank)
    refs = group.meet(view if group.rank == src_rank else None)
    if group.rank != src_rank:
        value = api.get(refs[src_rank])
        check_equal("broadcast", src_rank, value, view)
        fill(view, value)


def allgather(tensor_list: Sequence[Any], tensor: Any, group_name: str = "default") -> None:
    """Fills `tensor_list` with the tensors of all members, by rank.

    Raises:
        RuntimeError: the list does not have one tensor per member, of the same shape and dtype.
    """
    group = _group(group_name)
    _check_length(group, tensor_list)
    targets = [view_of(target) for target in tensor_list]
    values = _read(group.meet(view_of(tensor)))
    for rank, (target, value) in enumerate(zip(targets, values, strict=True)):
        check_equal("allgather", rank, value, target)
    for target, value in zip(targets, values, strict=True):
        fill(target, value)


def reducescatter(
    tensor: Any, tensor_list: Sequence[Any], group_name: str = "default", op: ReduceOp = ReduceOp.SUM
) -> None:
    """Fills `tensor` with the reduction over all members of the tensor at this member's index in `tensor_list`.

    Raises:
        RuntimeError: the list does not have one tensor per member.
    """
    group, view = _group(group_name), view_of(tensor)
    _check_length(group, tensor_list)
    lists = _read(group.meet([view_of(one) for one in tensor_list]))
    fill(view, _reduced("reducescatter", [one[group.rank] for one in lists], op, view))


def barrier(group_name: str = "default") -> None:
    """Waits for all members."""
    _group(group_name).meet(None)


def send(tensor: Any, dst_rank: int, group_name: str = "default") -> None:
    """Sends a tensor to one member, which calls `recv`.

    Raises:
        RuntimeError: `dst_rank` is this process.
    """
    group = _group(group_name)
    _check_other(group, dst_rank)
    number = group.next_letter(group.rank, dst_rank)
    api.get(group.meeting.post.remote(group.rank, dst_rank, number, [api.put(view_of(tensor))]))


def recv(tensor: Any, src_rank: int, group_name: str = "default") -> None:
    """Fills `tensor` with the tensor that member `src_rank` sends.

    Raises:
        RuntimeError: `src_rank` is this process.
    """
    group, view = _group(group_name), view_of(tensor)
    _check_other(group, src_rank)
    number = group.next_letter(src_rank, group.rank)
    (ref,) = api.get(group.meeting.fetch.remote(src_rank, group.rank, number))
    value = api.get(ref)
    check_equal("recv", src_rank, value, view)
    fill(view, value)


def _read(refs: Sequence[Any]) -> list[Any]:
    values: list[Any] = api.get(list(refs))
    return values


def _reduced(operation: str, arrays: Sequence[Any], op: ReduceOp, like: Any) -> Any:
    import numpy

    for rank, array in enumerate(arrays):
        check_equal(operation, rank, array, like)

    merge = {
        ReduceOp.SUM: numpy.add,
        ReduceOp.AVERAGE: numpy.add,
        ReduceOp.PRODUCT: numpy.multiply,
        ReduceOp.MAX: numpy.maximum,
        ReduceOp.MIN: numpy.minimum,
    }[op]
    result = numpy.array(arrays[0], copy=True)
    for array in arrays[1:]:
        merge(result, array, out=result)
    return (result / len(arrays)).astype(like.dtype) if op is ReduceOp.AVERAGE else result


def _check_rank(group: _Group, rank: int) -> None:
    if not 0 <= rank < group.world_size:
        raise ValueError(f"rank '{rank}' must be within 0 to {group.world_size - 1}, the ranks of the group.")


def _check_other(group: _Group, rank: int) -> None:
    _check_rank(group, rank)
    if rank == group.rank:
        raise RuntimeError(f"The destination rank '{rank}' is self.")


def _check_length(group: _Group, tensors: Sequence[Any]) -> None:
    if not isinstance(tensors, list | tuple) or len(tensors) != group.world_size:
        raise RuntimeError(
            f"The length of the tensor list operands to a collective must be equal to world_size, {group.world_size}."
        )
