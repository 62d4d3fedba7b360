"""Helpers for mixed precision that Ray has withdrawn, as it has."""

from __future__ import annotations

from typing import NoReturn

_INSTEAD = (
    "ray.train.torch.{} is withdrawn: use torch.amp (autocast and GradScaler), Lightning, or Hugging Face's "
    "Transformers or Accelerate for mixed precision."
)


def accelerate(amp: bool = False) -> NoReturn:
    """Withdrawn.

    Raises:
        DeprecationWarning: always.
    """
    raise DeprecationWarning(_INSTEAD.format("accelerate"))


def prepare_optimizer(optimizer: object) -> NoReturn:
    """Withdrawn.

    Raises:
        DeprecationWarning: always.
    """
    raise DeprecationWarning(_INSTEAD.format("prepare_optimizer"))


def backward(tensor: object) -> NoReturn:
    """Withdrawn.

    Raises:
        DeprecationWarning: always.
    """
    raise DeprecationWarning(_INSTEAD.format("backward"))
