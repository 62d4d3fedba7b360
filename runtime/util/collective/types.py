"""Words of collective communication, and its errors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum


class Backend(str):
    """How a group communicates. `Backend("gloo")` checks a name and returns it as Ray does: "GLOO". What a program
    registers (`register_collective_backend`) becomes a further attribute.

    Raises:
        ValueError: the backend does not exist.
    """

    NCCL = "NCCL"
    GLOO = "GLOO"
    UNRECOGNIZED = "unrecognized"

    def __new__(cls, name: str = "gloo") -> str:  # type: ignore[misc]
        """Checks a name."""
        chosen = str(name).upper()
        if chosen == "TORCH_GLOO":
            return cls.GLOO
        if getattr(cls, chosen, None) == chosen:
            return chosen
        raise ValueError(
            f"Unrecognized backend: '{name}'. Only NCCL and GLOO are supported, and what "
            "register_collective_backend() was called for in this process."
        )


class ReduceOp(Enum):
    """How a reduction combines tensors."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    AVERAGE = 4
    AVG = 4  # noqa: PIE796 the same under the name that Ray's graphs have


class GroupError(RuntimeError):
    """The group cannot go on: a member has left or died, an operation failed halfway, or the group was destroyed.
    Destroy it and initialize it again."""


class MemberLostError(GroupError):
    """A member's process ended.

    Attributes:
        rank: the member.
        who: what it was: the actor or task, process and node.
    """

    def __init__(self, group_name: str, rank: int, who: str) -> None:
        self.group_name = group_name
        self.rank = rank
        self.who = who
        super().__init__(f"Rank {rank} of the collective group '{group_name}' is gone: {who}.")

    def __reduce__(self) -> tuple[type[MemberLostError], tuple[str, int, str]]:
        return type(self), (self.group_name, self.rank, self.who)


# What `BaseGroup` is called with, under Ray's names. -1 ms: the backend's own timeout.

_UNSET = timedelta(milliseconds=-1)


@dataclass
class AllReduceOptions:
    """Of `BaseGroup.allreduce`."""

    reduceOp: ReduceOp = ReduceOp.SUM
    timeout_ms: timedelta = _UNSET


@dataclass
class BarrierOptions:
    """Of `BaseGroup.barrier`."""

    timeout_ms: timedelta = _UNSET


@dataclass
class ReduceOptions:
    """Of `BaseGroup.reduce`."""

    reduceOp: ReduceOp = ReduceOp.SUM
    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: timedelta = _UNSET


@dataclass
class AllGatherOptions:
    """Of `BaseGroup.allgather`."""

    timeout_ms: timedelta = _UNSET


@dataclass
class BroadcastOptions:
    """Of `BaseGroup.broadcast`."""

    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: timedelta = _UNSET


@dataclass
class ReduceScatterOptions:
    """Of `BaseGroup.reducescatter`."""

    reduceOp: ReduceOp = ReduceOp.SUM
    timeout_ms: timedelta = _UNSET


@dataclass
class SendOptions:
    """Of `BaseGroup.send`."""

    dst_rank: int = 0
    dst_gpu_index: int = 0
    n_elements: int = 0
    timeout_ms: timedelta = _UNSET


@dataclass
class RecvOptions:
    """Of `BaseGroup.recv`."""

    src_rank: int = 0
    src_gpu_index: int = 0
    n_elements: int = 0
    timeout_ms: timedelta = _UNSET
