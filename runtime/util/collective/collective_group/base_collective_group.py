"""The interface of backends that a program registers; see `backend_registry`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ..types import (
    AllGatherOptions,
    AllReduceOptions,
    BarrierOptions,
    BroadcastOptions,
    RecvOptions,
    ReduceOptions,
    ReduceScatterOptions,
    SendOptions,
)


class BaseGroup(ABC):
    """One member of a group. It is made in the member's process when that joins, and finds the others itself.

    Operations get lists with one tensor, as in Ray, where a process may have several.

    Args:
        world_size: the number of members.
        rank: this one.
        group_name: the same for all members.
    """

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        self._world_size = world_size
        self._rank = rank
        self._group_name = group_name

    @property
    def rank(self) -> int:
        """This member's rank."""
        return self._rank

    @property
    def world_size(self) -> int:
        """The number of members."""
        return self._world_size

    @property
    def group_name(self) -> str:
        """The group's name."""
        return self._group_name

    @classmethod
    def backend(cls) -> str:
        """The backend's name."""
        raise NotImplementedError(f"{cls.__name__} does not say its name.")

    @classmethod
    @abstractmethod
    def check_backend_availability(cls) -> bool:
        """Whether this process can use the backend."""

    def destroy_group(self) -> None:  # noqa: B027
        """Leaves the group."""

    @abstractmethod
    def allreduce(self, tensor: Sequence[Any], allreduce_options: AllReduceOptions) -> None:
        """The tensor becomes the reduction of all members'."""

    @abstractmethod
    def barrier(self, barrier_options: BarrierOptions) -> None:
        """Waits for all members."""

    @abstractmethod
    def reduce(self, tensor: Sequence[Any], reduce_options: ReduceOptions) -> None:
        """The tensor of `root_rank` becomes the reduction of all members'."""

    @abstractmethod
    def allgather(
        self,
        tensor_list: Sequence[Sequence[Any]],
        tensor: Sequence[Any],
        allgather_options: AllGatherOptions,
    ) -> None:
        """The tensors of the list become those of all members, by rank."""

    @abstractmethod
    def broadcast(self, tensor: Sequence[Any], broadcast_options: BroadcastOptions) -> None:
        """The tensor becomes that of `root_rank`."""

    @abstractmethod
    def reducescatter(
        self,
        tensor: Sequence[Any],
        tensor_list: Sequence[Sequence[Any]],
        reducescatter_options: ReduceScatterOptions,
    ) -> None:
        """The tensor becomes the reduction of all members' at this member's index."""

    @abstractmethod
    def send(self, tensor: Sequence[Any], send_options: SendOptions) -> None:
        """Sends the tensor to `dst_rank`."""

    @abstractmethod
    def recv(self, tensor: Sequence[Any], recv_options: RecvOptions) -> None:
        """The tensor becomes what `src_rank` sends."""
