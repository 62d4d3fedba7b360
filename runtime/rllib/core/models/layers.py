"""Descriptions of layers, and the sizes of what convolutions give."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

Initializer = str | Callable[..., Any] | None
FilterSpecifier = Sequence[Any]  # channels, kernel, stride and optionally "same" or "valid"


def pair(value: Any) -> tuple[int, int]:
    """(height, width) of a number for both, or of two numbers."""
    if isinstance(value, int):
        return (value, value)
    height, width = value
    return (int(height), int(width))


def parse_filter(specifier: FilterSpecifier) -> tuple[int, tuple[int, int], tuple[int, int], str]:
    """(channels, kernel, stride, padding) of [channels, kernel, stride] or [channels, kernel, stride, padding].

    Raises:
        ValueError: the specifier has another length, or its padding is neither "same" nor "valid".
    """
    if len(specifier) not in (3, 4):
        raise ValueError(f"A convolution is [channels, kernel, stride, optional padding], not {specifier!r}")
    padding = specifier[3] if len(specifier) == 4 else "same"
    if padding not in ("same", "valid"):
        raise ValueError(f"The padding of a convolution must be 'same' or 'valid', not {padding!r}")
    return int(specifier[0]), pair(specifier[1]), pair(specifier[2]), padding


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """(before, after): the padding with which a convolution gives ceil(size / stride) outputs."""
    total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def convolved_size(size: int, kernel: int, stride: int, padding: str) -> int:
    """Number of outputs of a convolution along one dimension."""
    if padding == "same":
        return math.ceil(size / stride)
    return (size - kernel) // stride + 1
