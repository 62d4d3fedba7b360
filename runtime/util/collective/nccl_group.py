"""Groups of GPUs by NCCL, behind the same interface. It has not been run, as there was no GPU to run it on.

What it shares with Gloo across nodes (`torch_plane`) is tested there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .group import Call, Group
from .torch_plane import reduction
from .types import ReduceOp


class NcclGroup(Group):
    """A member whose tensors are torch's, on one GPU. Operations have ended on the GPU when they return, and one at a
    time is carried out, sending and receiving included."""

    def allreduce(self, tensor: Any, op: ReduceOp) -> None:
        self._carry_out(
            "allreduce", op.name, [tensor], lambda group: group.allreduce([tensor], reduction(op))
        )
        self._divide(tensor, op)

    def reduce(self, tensor: Any, root: int, op: ReduceOp) -> None:
        self._check_rank(root)
        self._carry_out(
            "reduce",
            f"{op.name} {root}",
            [tensor],
            lambda group: group.reduce(tensor, root, reduction(op)),
        )
        if self.rank == root:
            self._divide(tensor, op)

    def broadcast(self, tensor: Any, root: int) -> None:
        self._check_rank(root)
        self._carry_out("broadcast", f"{root}", [tensor], lambda group: group.broadcast(tensor, root))

    def allgather(self, tensors: Sequence[Any], tensor: Any) -> None:
        self._check_length(tensors)
        self._carry_out(
            "allgather", "", [tensor, *tensors], lambda group: group.allgather(list(tensors), tensor)
        )

    def reducescatter(self, tensor: Any, tensors: Sequence[Any], op: ReduceOp) -> None:
        self._check_length(tensors)
        self._carry_out(
            "reducescatter",
            op.name,
            [tensor, *tensors],
            lambda group: group.reduce_scatter(tensor, list(tensors), reduction(op)),
        )
        self._divide(tensor, op)

    def send(self, tensor: Any, peer: int) -> None:
        self._check_other(peer)
        self._carry_out("send", "", [tensor], lambda group: group.send([tensor], peer, 0))

    def receive(self, tensor: Any, peer: int) -> None:
        self._check_other(peer)
        self._carry_out("send", "", [tensor], lambda group: group.recv([tensor], peer, 0))

    def _divide(self, tensor: Any, op: ReduceOp) -> None:
        if op is ReduceOp.AVERAGE:
            tensor.div_(self.world_size)

    def _carry_out(
        self, operation: str, detail: str, tensors: Sequence[Any], start: Callable[[Any], Any]
    ) -> None:
        import torch

        first = tensors[0]
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cuda":
                raise TypeError(f"Groups of NCCL take torch tensors on a GPU, not {type(tensor).__name__}.")
            if (tensor.shape, tensor.dtype) != (first.shape, first.dtype):
                raise RuntimeError(f"All tensors of {operation} must have the same shape and dtype.")

        def on_gpu(group: Any) -> None:
            with torch.cuda.device(first.device):
                start(group).wait()
                torch.cuda.current_stream().synchronize()

        torch.cuda.current_stream(first.device).synchronize()  # what the caller began on its stream
        call = Call(operation, detail, tuple(first.shape), f"torch {first.dtype}")
        with self._lock:
            self._links.connect()
            self._plane.open()
            if operation != "send":  # those who do not send or receive know nothing of it
                self._agree(call)
            self._plane.run(on_gpu)
