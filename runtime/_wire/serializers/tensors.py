"""PyTorch tensors in main memory. Their own pickling copies whole storages into the pickle; here the elements go out of
band. They must be writable where they arrive, unlike numpy's arrays: programs train models that they were sent. Large
ones that lie in an object store are mapped privately: read in place, and a page is copied when it is first written to.
"""

from __future__ import annotations

import pickle
from typing import Any

import torch

from runtime._wire import serialization


def reduce(value: Any) -> Any:
    """See `serializers.Reducer`."""
    if not isinstance(value, torch.Tensor) or not _is_plain(value):
        return NotImplemented
    tensor = value.detach()
    if not tensor.is_contiguous():
        tensor = tensor.clone()  # keeps the order of dimensions in memory where there are no gaps
    flat = tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset()).view(torch.uint8)
    is_parameter = isinstance(value, torch.nn.Parameter)
    shape, stride = tuple(tensor.shape), tensor.stride()
    return rebuild, (
        pickle.PickleBuffer(flat.numpy()),
        tensor.dtype,
        shape,
        stride,
        value.requires_grad,
        is_parameter,
    )


def _is_plain(tensor: Any) -> bool:
    """Whether the elements are all there is to it."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.numel() > 0
        and tensor.is_leaf
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not tensor._backward_hooks
        and not tensor.__dict__
    )


def rebuild(
    data: Any,
    dtype: Any,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    is_parameter: bool,
) -> Any:
    """The tensor of these bytes, writable."""
    writable = serialization.collector.writable
    block = writable(data) if writable is not None else bytearray(data)
    tensor = torch.frombuffer(block, dtype=torch.uint8).view(dtype).as_strided(shape, stride)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)
