"""Words of collective communication, and its errors."""

from __future__ import annotations

from enum import Enum


class Backend(str):
    """How a group communicates. `Backend("gloo")` checks a name and returns it as Ray does: "GLOO".

    Raises:
        ValueError: the backend does not exist.
    """

    NCCL = "NCCL"
    GLOO = "GLOO"
    UNRECOGNIZED = "unrecognized"

    def __new__(cls, name: str = "gloo") -> str:  # type: ignore[misc]
        """Checks a name."""
        chosen = str(name).upper()
        if chosen in (cls.GLOO, "TORCH_GLOO"):
            return cls.GLOO
        if chosen == cls.NCCL:
            return cls.NCCL
        raise ValueError(f"Unrecognized backend: '{name}'. Only NCCL and GLOO are supported")


class ReduceOp(Enum):
    """How a reduction combines tensors."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    AVERAGE = 4


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
