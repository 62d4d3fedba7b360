"""Initial weights and the padding of convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...core.models.layers import convolved_size, pair
from ...core.models.layers import same_padding as _padding_along

Size = int | tuple[int, int] | list[int]


def normc_initializer(std: float = 1.0) -> Callable[[torch.Tensor], None]:
    """A function that fills a weight [outputs, inputs] in place: normal values, each row scaled to the length `std`."""

    def fill(weight: torch.Tensor) -> None:
        with torch.no_grad():
            weight.normal_()
            weight.mul_(std / weight.norm(dim=1, keepdim=True))

    return fill


def same_padding(
    in_size: tuple[int, int], filter_size: Size, stride_size: Size
) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """For a convolution whose output has the input's size divided by the stride, rounded up.

    Args:
        in_size: (height, width).
        filter_size, stride_size: One number, or (height, width).

    Returns:
        ((left, right, top, bottom) for `torch.nn.ZeroPad2d`, (height, width) of the output).
    """
    (height, width), kernel, stride = in_size, pair(filter_size), pair(stride_size)
    top, bottom = _padding_along(height, kernel[0], stride[0])
    left, right = _padding_along(width, kernel[1], stride[1])
    return (left, right, top, bottom), _outputs(in_size, kernel, stride, "same")


def valid_padding(in_size: tuple[int, int], filter_size: Size, stride_size: Size) -> tuple[int, int]:
    """(height, width) of the output of a convolution without padding; see `same_padding`."""
    return _outputs(in_size, pair(filter_size), pair(stride_size), "valid")


def _outputs(size: Any, kernel: tuple[int, int], stride: tuple[int, int], padding: str) -> tuple[int, int]:
    height, width = (convolved_size(size[axis], kernel[axis], stride[axis], padding) for axis in (0, 1))
    return height, width
