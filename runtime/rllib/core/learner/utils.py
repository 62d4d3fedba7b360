"""Target networks."""

from __future__ import annotations

import copy
from typing import Any


def make_target_network(main_net: Any) -> Any:
    """A copy of the network, with equal weights and without gradients.

    Raises:
        ValueError: it is no `torch.nn.Module`.
    """
    _check(main_net)
    return copy.deepcopy(main_net).requires_grad_(False)


def update_target_network(*, main_net: Any, target_net: Any, tau: float) -> None:
    """Moves the target's weights towards those of the main network: `tau * main + (1 - tau) * target`.

    Buffers, such as running means, are copied.

    Args:
        main_net: the network to follow.
        target_net: a network of the same parameters.
        tau: 1.0 copies the weights.

    Raises:
        ValueError: one of them is no `torch.nn.Module`.
    """
    _check(main_net)
    _check(target_net)
    import torch

    with torch.no_grad():
        main, target = list(main_net.parameters()), list(target_net.parameters())
        if tau == 1.0:
            torch._foreach_copy_(target, main)
        elif target:
            torch._foreach_lerp_(target, main, tau)
        for buffer, source in zip(target_net.buffers(), main_net.buffers(), strict=True):
            buffer.copy_(source)


def _check(network: Any) -> None:
    import torch

    if not isinstance(network, torch.nn.Module):
        raise ValueError(f"A target network needs a torch.nn.Module, not {type(network).__name__}")
