"""Functions of tensors: conversion, clipping of gradients, and small formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from .._core import trees
from .numpy import leaves_and_spaces

FLOAT_MIN = -3.4e38
FLOAT_MAX = 3.4e38

Tensor = Any  # torch.Tensor; torch's annotations are not followed


def convert_to_torch_tensor(x: Any, device: Any = None, pin_memory: bool = False, **_: Any) -> Any:
    """A tree of arrays and numbers as a tree of tensors; float64 becomes float32, unsigned integers of more
    than 8 bits int64.

    None, strings and arrays of objects or strings stay as they are. Arrays that can be written to share their memory
    with the result.

    Args:
        x: the tree.
        device: where the tensors shall be; None leaves them where they are.
        pin_memory: copy tensors of the CPU to pinned memory first, for faster transfer to a GPU.
    """

    def convert(item: Any) -> Any:
        if item is None or isinstance(item, str | bytes):
            return item
        if isinstance(item, torch.Tensor):
            tensor = item
        else:
            array = np.asarray(item)
            if array.dtype == object or array.dtype.kind in "USOV":
                return item
            if array.dtype in (np.uint16, np.uint32, np.uint64):  # torch computes little with these
                array = array.astype(np.int64)
            # torch warns about arrays that NumPy may not write to, and takes none that run backwards.
            shareable = array.flags.writeable and all(stride >= 0 for stride in array.strides)
            tensor = torch.from_numpy(array if shareable else array.copy())
        if tensor.dtype == torch.float64:
            tensor = tensor.float()
        if pin_memory and tensor.device.type == "cpu" and torch.cuda.is_available():
            tensor = tensor.pin_memory()
        return tensor if device is None else tensor.to(device, non_blocking=pin_memory)

    return trees.tree_map(convert, x)


def copy_torch_tensors(x: Any, device: Any = None) -> Any:
    """A tree with copies of the tensors, without gradients; other leaves stay as they are."""

    def copy(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        copied = item.detach().clone()
        return copied if device is None else copied.to(device)

    return trees.tree_map(copy, x)


def clip_gradients(
    gradients_dict: dict[Any, Tensor], *, grad_clip: float | None = None, grad_clip_by: str = "value"
) -> Tensor | None:
    """Clips gradients in place.

    Args:
        gradients_dict: parameter -> gradient, or None.
        grad_clip: the limit; None clips nothing.
        grad_clip_by: "value": each element to +- the limit; "norm": each gradient's L2 norm; "global_norm": the L2 norm
            of all gradients together.

    Returns:
        The global norm before clipping, for "global_norm"; else None.

    Raises:
        ValueError: `grad_clip_by` is none of these.
    """
    if grad_clip is None:
        return None
    gradients = [gradient for gradient in gradients_dict.values() if gradient is not None]
    if grad_clip_by == "value":
        if gradients:
            torch._foreach_clamp_min_(gradients, -grad_clip)
            torch._foreach_clamp_max_(gradients, grad_clip)
        return None
    if grad_clip_by == "norm":
        for gradient in gradients:
            gradient.mul_((grad_clip / gradient.norm(2).clamp_min(1e-12)).clamp(max=1.0))
        return None
    if grad_clip_by == "global_norm":
        norm = compute_global_norm(gradients)
        if gradients:
            torch._foreach_mul_(gradients, (grad_clip / norm.clamp_min(grad_clip)).to(gradients[0].device))
        return norm
    raise ValueError(f"grad_clip_by must be 'value', 'norm' or 'global_norm', not {grad_clip_by!r}")


def compute_global_norm(gradients_list: Sequence[Tensor | None]) -> Tensor:
    """The L2 norm of all gradients together; 0 if there are none."""
    gradients = [gradient for gradient in gradients_list if gradient is not None]
    if not gradients:
        return torch.tensor(0.0)
    return torch.stack(torch._foreach_norm(gradients)).norm(2)


def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """The L2 norm of all tensors together."""
    return compute_global_norm(tensors)


def explained_variance(y: Tensor, pred: Tensor) -> Tensor:
    """1 - Var(y - pred) / Var(y), at least -1; 1 is a perfect prediction, 0 is as good as a constant."""
    variance = torch.var(y, dim=0).clamp_min(1e-8)
    return (1 - torch.var(y - pred, dim=0) / variance).clamp_min(-1.0)


def flatten_inputs_to_1d_tensor(inputs: Any, spaces_struct: Any = None, time_axis: bool = False) -> Tensor:
    """Joins the leaves of a tree along the last dimension; values of discrete spaces become one-hot vectors.

    Args:
        inputs: tree of tensors [batch, ...], or [batch, time, ...] with `time_axis`.
        spaces_struct: tree of the leaves' spaces; without it nothing is one-hot encoded.
        time_axis: leaves have a time dimension, which the result keeps.

    Returns:
        Tensor [batch, (time,) features].
    """
    leading = 2 if time_axis else 1
    parts = []
    for leaf, space in leaves_and_spaces(inputs, spaces_struct):
        if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
            leaf = one_hot(leaf, space)
        parts.append(leaf.reshape(*leaf.shape[:leading], -1).float())
    return torch.cat(parts, -1)


def huber_loss(x: Tensor, delta: float = 1.0) -> Tensor:
    """Elementwise: x^2 / 2 up to |x| = delta, then linear."""
    size = x.abs()
    return torch.where(size < delta, 0.5 * x * x, delta * (size - 0.5 * delta))


def l2_loss(x: Tensor) -> Tensor:
    """Half of the sum of squares."""
    return 0.5 * x.square().sum()


def one_hot(x: Tensor, space: Any) -> Tensor:
    """One-hot vectors of values of a Discrete or MultiDiscrete space; int64.

    Raises:
        ValueError: the space is neither.
    """
    functional = torch.nn.functional
    if isinstance(space, gym.spaces.Discrete):
        return functional.one_hot(x.long() - int(space.start), int(space.n))
    if isinstance(space, gym.spaces.MultiDiscrete):
        starts = np.asarray(space.start).ravel()
        nvec = space.nvec.ravel()
        columns = x.long().reshape(*x.shape[: x.dim() - space.nvec.ndim], -1)
        return torch.cat(
            [functional.one_hot(columns[..., i] - int(starts[i]), int(n)) for i, n in enumerate(nvec)], -1
        )
    raise ValueError(f"One-hot vectors exist for Discrete and MultiDiscrete spaces, not for {space}")


def reduce_mean_ignore_inf(x: Tensor, axis: int | None = None) -> Tensor:
    """The mean of the finite elements, along an axis or of all."""
    finite = torch.isfinite(x)
    kept = torch.where(finite, x, torch.zeros_like(x))
    if axis is None:
        return kept.sum() / finite.sum()
    return kept.sum(axis) / finite.sum(axis)


def sequence_mask(
    lengths: Tensor, maxlen: int | None = None, dtype: Any = None, time_major: bool = False
) -> Tensor:
    """True for the first `lengths[i]` steps: [batch] -> [batch, maxlen], or [maxlen, batch] if `time_major`."""
    steps = torch.arange(int(lengths.max()) if maxlen is None else maxlen, device=lengths.device)
    mask = steps[None, :] < lengths[:, None]
    if time_major:
        mask = mask.T
    return mask.to(torch.bool if dtype is None else dtype)


def set_torch_seed(seed: int | None = None) -> None:
    """Seeds torch's generators, of GPUs, too; None does nothing."""
    if seed is not None:
        torch.manual_seed(seed)


def softmax_cross_entropy_with_logits(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of distributions `labels` and softmax(logits): [batch, n] -> [batch]."""
    return -(labels * torch.log_softmax(logits, -1)).sum(-1)


def symlog(x: Tensor) -> Tensor:
    """sign(x) * log(|x| + 1): about x near 0, logarithmic far from it (DreamerV3, section "Learning")."""
    return x.sign() * x.abs().log1p()


def inverse_symlog(y: Tensor) -> Tensor:
    """sign(y) * (exp(|y|) - 1), the inverse of `symlog`."""
    return y.sign() * y.abs().expm1()


def two_hot(
    value: Tensor,
    num_buckets: int = 255,
    lower_bound: float = -20.0,
    upper_bound: float = 20.0,
    device: Any = None,
) -> Tensor:
    """Distributions over buckets at equal distances whose means are the values: [batch] -> [batch, num_buckets].

    At most two neighbours are not 0. Values beyond the bounds are clipped.
    """
    value = value.to(device) if device is not None else value
    position = (value.clamp(lower_bound, upper_bound) - lower_bound) * (
        (num_buckets - 1) / (upper_bound - lower_bound)
    )
    below = position.floor().clamp(max=num_buckets - 2)
    share = (position - below).unsqueeze(-1)
    index = below.long().unsqueeze(-1)
    result = torch.zeros(*value.shape, num_buckets, dtype=value.dtype, device=value.device)
    result.scatter_(-1, index, 1 - share)
    return result.scatter_(-1, index + 1, share)


def update_target_network(main_net: Any, target_net: Any, tau: float) -> None:
    """Moves the target's weights towards those of `main_net`: target += tau * (main - target). Buffers are copied."""
    with torch.no_grad():
        targets, mains = list(target_net.parameters()), [p.detach() for p in main_net.parameters()]
        if targets:
            torch._foreach_lerp_(targets, mains, tau)
        for target, main in zip(target_net.buffers(), main_net.buffers(), strict=True):
            target.copy_(main)
