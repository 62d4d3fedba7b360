"""Norms and clipping of gradients, and their mean over learners."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def global_norm(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """The 2-norm of all gradients together, a scalar tensor."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(gradients))))


def clip(gradients: Sequence[torch.Tensor], bound: float, by: str) -> torch.Tensor | None:
    """Clips gradients in place.

    Args:
        gradients: the tensors.
        bound: the limit.
        by: "value": each number is at most `bound`; "norm": each tensor's norm is; "global_norm": that of all together.

    Returns:
        The global norm before, for "global_norm"; else None. A tensor, so that the device need not be waited for.

    Raises:
        ValueError: `by` is none of these.
    """
    gradients = list(gradients)
    if by == "value":
        for gradient in gradients:
            gradient.clamp_(-bound, bound)
        return None
    if by == "norm":
        for gradient, norm in zip(gradients, torch._foreach_norm(gradients), strict=True):
            gradient.mul_((bound / (norm + 1e-6)).clamp_(max=1.0))
        return None
    if by != "global_norm":
        raise ValueError(f"grad_clip_by must be 'value', 'norm' or 'global_norm', not {by!r}")
    norm = global_norm(gradients)
    torch._foreach_mul_(gradients, (bound / (norm + 1e-6)).clamp_(max=1.0))
    return norm


def average_over_learners(gradients: Sequence[torch.Tensor]) -> None:
    """Replaces gradients by their means over all ranks of the process group, in one collective operation."""
    import torch.distributed as distributed

    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    for gradient, mean in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def most_of_learners(number: int, device: torch.device) -> int:
    """The largest of the numbers that the ranks of the process group have."""
    import torch.distributed as distributed

    largest = torch.tensor(number, device=device)
    distributed.all_reduce(largest, distributed.ReduceOp.MAX)
    return int(largest)
