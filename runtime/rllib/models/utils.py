"""Activations by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def get_activation_fn(
    name: str | Callable[[], Any] | None = None, framework: str = "torch"
) -> Callable[[], Any] | None:
    """The class of an activation; None for "linear".

    Args:
        name: "relu", "tanh", "elu", "silu" ("swish") or another name in torch.nn; a class is returned as it is.
        framework: "torch".

    Raises:
        ValueError: an unknown name or another framework.
    """
    from ..core.models.torch.primitives import make_activation

    if framework != "torch":
        raise ValueError(f"There are models of torch only, not of {framework!r}")
    if callable(name):
        return name
    module = make_activation(name)
    return None if module is None else type(module)
