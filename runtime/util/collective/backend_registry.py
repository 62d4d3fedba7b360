"""Which backends there are: the engine's own, and those that a program registers."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from .collective_group.base_collective_group import BaseGroup
from .types import (
    AllGatherOptions,
    AllReduceOptions,
    Backend,
    BarrierOptions,
    BroadcastOptions,
    RecvOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    SendOptions,
)

_registered: dict[str, type[BaseGroup]] = {}


def register_collective_backend(name: str, group_cls: type[BaseGroup]) -> None:
    """Lets groups use a backend of the program's own: in this process, so drivers and members each register it.

    Args:
        name: the backend's; upper and lower case are the same. `Backend` gets an attribute of that name.
        group_cls: is called with `world_size`, `rank` and `group_name` in each member's process.

    Raises:
        TypeError: `group_cls` is no subclass of `BaseGroup`.
        ValueError: the name is taken.
    """
    if not isinstance(group_cls, type) or not issubclass(group_cls, BaseGroup):
        raise TypeError(f"{group_cls} is not a subclass of BaseGroup")
    chosen = name.upper()
    if hasattr(Backend, chosen):
        raise ValueError(f"Backend {chosen} already registered")
    _registered[chosen] = group_cls
    setattr(Backend, chosen, chosen)


def registered(backend: str) -> type[BaseGroup] | None:
    """The class that a program has registered under `Backend(name)`."""
    return _registered.get(backend)


def is_available(backend: str) -> bool:
    """Whether this process can use `Backend(name)`."""
    if backend == Backend.NCCL:
        if importlib.util.find_spec("torch") is None:
            return False
        import torch

        return bool(torch.cuda.is_available() and torch.distributed.is_nccl_available())
    group_cls = _registered.get(backend)
    return backend == Backend.GLOO or (group_cls is not None and group_cls.check_backend_availability())


class RegisteredGroup:
    """A member of a group whose backend a program has registered, called as `Group` is.

    Args:
        handle: what the program's class made.
    """

    def __init__(self, handle: BaseGroup) -> None:
        self.handle = handle
        self.world_size = handle.world_size
        self.rank = handle.rank
        self.group_name = handle.group_name

    def allreduce(self, tensor: Any, op: ReduceOp) -> None:
        """See `BaseGroup`, as for all operations."""
        self.handle.allreduce([tensor], AllReduceOptions(op))

    def reduce(self, tensor: Any, root: int, op: ReduceOp) -> None:
        self.handle.reduce([tensor], ReduceOptions(op, root))

    def broadcast(self, tensor: Any, root: int) -> None:
        self.handle.broadcast([tensor], BroadcastOptions(root))

    def allgather(self, tensors: Sequence[Any], tensor: Any) -> None:
        self.handle.allgather([tensors], [tensor], AllGatherOptions())

    def reducescatter(self, tensor: Any, tensors: Sequence[Any], op: ReduceOp) -> None:
        self.handle.reducescatter([tensor], [tensors], ReduceScatterOptions(op))

    def barrier(self) -> None:
        self.handle.barrier(BarrierOptions())

    def send(self, tensor: Any, peer: int) -> None:
        self.handle.send([tensor], SendOptions(peer))

    def receive(self, tensor: Any, peer: int) -> None:
        self.handle.recv([tensor], RecvOptions(peer))

    def destroy_group(self) -> None:
        self.handle.destroy_group()
