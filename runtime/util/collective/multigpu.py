"""Operations on the tensors of several GPUs of one process, which no backend here has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from .types import ReduceOp


def allreduce_multigpu(
    tensor_list: Sequence[Any], group_name: str = "default", op: ReduceOp = ReduceOp.SUM
) -> None:
    """Raises RuntimeError."""
    _refuse()


def reduce_multigpu(
    tensor_list: Sequence[Any],
    dst_rank: int = 0,
    dst_tensor: int = 0,
    group_name: str = "default",
    op: ReduceOp = ReduceOp.SUM,
) -> None:
    """Raises RuntimeError."""
    _refuse()


def broadcast_multigpu(
    tensor_list: Sequence[Any], src_rank: int = 0, src_tensor: int = 0, group_name: str = "default"
) -> None:
    """Raises RuntimeError."""
    _refuse()


def allgather_multigpu(
    output_tensor_lists: Sequence[Sequence[Any]],
    input_tensor_list: Sequence[Any],
    group_name: str = "default",
) -> None:
    """Raises RuntimeError."""
    _refuse()


def reducescatter_multigpu(
    output_tensor_list: Sequence[Any],
    input_tensor_lists: Sequence[Sequence[Any]],
    group_name: str = "default",
    op: ReduceOp = ReduceOp.SUM,
) -> None:
    """Raises RuntimeError."""
    _refuse()


def send_multigpu(
    tensor: Any, dst_rank: int, dst_gpu_index: int, group_name: str = "default", n_elements: int = 0
) -> None:
    """Raises RuntimeError."""
    raise RuntimeError("send_multigpu call requires NCCL.")


def recv_multigpu(
    tensor: Any, src_rank: int, src_gpu_index: int, group_name: str = "default", n_elements: int = 0
) -> None:
    """Raises RuntimeError."""
    raise RuntimeError("recv_multigpu call requires NCCL.")


def _refuse() -> NoReturn:
    raise RuntimeError("Multigpu calls requires NCCL and Cupy.")
