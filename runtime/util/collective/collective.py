"""Collective communication of actors and tasks: numpy arrays and torch tensors, in place.

Every member of a group calls the same operations in the same order. With the backend "gloo" tensors are in main memory:
on a node they go through shared memory, to other nodes over TCP (`links`). `plan` says who sends what to whom; `group`
carries it out; results are written into the caller's tensors (`tensors.fill` describes the case of read-only ones).
Large torch tensors go to other nodes by torch's Gloo (`torch_plane`), which takes two thirds of the time. With "nccl"
they are torch's on GPUs (`nccl_group`, not run yet). `backend_registry` has what a program registers.

All operations raise `TimeoutError` if the other members do not join in time, `types.MemberLostError` as soon as a
member's process has ended, `types.GroupError` after the group has failed or was destroyed, and RuntimeError if the
members' tensors or operations do not fit each other, or this process is no member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import groups
from .backend_registry import RegisteredGroup, is_available
from .types import Backend, ReduceOp


def gloo_available() -> bool:
    """Whether groups in main memory are available: yes."""
    return True


def nccl_available() -> bool:
    """Whether this process can be in a group of GPUs: with torch, NCCL and a GPU."""
    return is_available(Backend.NCCL)


def is_backend_available(backend: str) -> bool:
    """Whether groups can communicate by a backend of this name in this process."""
    try:
        return is_available(Backend(backend))
    except ValueError:
        return False


def is_group_initialized(group_name: str = "default") -> bool:
    """Whether this process is a member."""
    return groups.find(group_name) is not None


def init_collective_group(
    world_size: int,
    rank: int,
    backend: str = Backend.GLOO,
    group_name: str = "default",
    gloo_timeout: int = 30_000,
) -> None:
    """Makes this process the member `rank` of a group. Does not wait for the others; the first operation does.

    Args:
        world_size: the number of members.
        rank: from 0.
        backend: "gloo", "nccl", or one that was registered in this process (`register_collective_backend`).
        group_name: unique in the job.
        gloo_timeout: milliseconds that an operation waits for the other members.

    Raises:
        RuntimeError: this process is already a member, it cannot use the backend, or `world_size` and `rank` do not
            fit.
        ValueError: there is no such backend.
    """
    groups.join(group_name, world_size, rank, backend, gloo_timeout / 1000)


def create_collective_group(
    actors: Sequence[Any],
    world_size: int,
    ranks: Sequence[int],
    backend: str = Backend.GLOO,
    group_name: str = "default",
    gloo_timeout: int = 30_000,
) -> None:
    """Makes `actors` the members of a group; they join with their first operation.

    Raises:
        RuntimeError: the group already exists, or `world_size` and `ranks` do not fit.
    """
    groups.declare(actors, world_size, ranks, backend, group_name, gloo_timeout / 1000)


def destroy_collective_group(group_name: str = "default") -> None:
    """Removes this process from the group, and the declaration of the group. Operations that wait end with an error."""
    groups.leave(group_name)


def get_rank(group_name: str = "default") -> int:
    """This process's rank; -1 if it is not a member."""
    group = groups.find(group_name)
    return group.rank if group is not None else -1


def get_collective_group_size(group_name: str = "default") -> int:
    """The number of members; -1 if this process is not one of them."""
    group = groups.find(group_name)
    return group.world_size if group is not None else -1


def get_group_handle(group_name: str = "default") -> Any:
    """This process's membership: a `group.Group`, or what the class of a registered backend made.

    Raises:
        RuntimeError: it is no member.
    """
    group = groups.find_or_join(group_name)
    return group.handle if isinstance(group, RegisteredGroup) else group


# ---------------------------------------------------------------- operations


def allreduce(tensor: Any, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Replaces every member's tensor by the reduction of all."""
    groups.find_or_join(group_name).allreduce(tensor, op)


def reduce(tensor: Any, dst_rank: int = 0, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Replaces the tensor of member `dst_rank` by the reduction of all."""
    groups.find_or_join(group_name).reduce(tensor, dst_rank, op)


def broadcast(tensor: Any, src_rank: int = 0, group_name: str = "default") -> None:
    """Replaces every member's tensor by that of `src_rank`."""
    groups.find_or_join(group_name).broadcast(tensor, src_rank)


def allgather(tensor_list: Sequence[Any], tensor: Any, group_name: str = "default") -> None:
    """Fills `tensor_list` with the tensors of all members, by rank.

    Raises:
        RuntimeError: the list does not have one tensor per member, of the same shape and dtype.
    """
    groups.find_or_join(group_name).allgather(tensor_list, tensor)


def reducescatter(
    tensor: Any, tensor_list: Sequence[Any], group_name: str = "default", op: ReduceOp = ReduceOp.SUM
) -> None:
    """Fills `tensor` with the reduction over all members of the tensor at this member's index in `tensor_list`.

    Raises:
        RuntimeError: the list does not have one tensor per member, of the same shape and dtype.
    """
    groups.find_or_join(group_name).reducescatter(tensor, tensor_list, op)


def barrier(group_name: str = "default") -> None:
    """Waits for all members."""
    groups.find_or_join(group_name).barrier()


def send(tensor: Any, dst_rank: int, group_name: str = "default") -> None:
    """Sends a tensor to one member, which calls `recv`.

    Raises:
        RuntimeError: `dst_rank` is this process.
    """
    groups.find_or_join(group_name).send(tensor, dst_rank)


def recv(tensor: Any, src_rank: int, group_name: str = "default") -> None:
    """Fills `tensor` with the tensor that member `src_rank` sends.

    Raises:
        RuntimeError: `src_rank` is this process.
    """
    groups.find_or_join(group_name).receive(tensor, src_rank)
