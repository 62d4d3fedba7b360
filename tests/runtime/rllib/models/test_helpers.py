"""Helpers for networks at the paths of the former stack."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from runtime.rllib.models.torch.misc import normc_initializer, same_padding, valid_padding
from runtime.rllib.models.utils import get_activation_fn


@pytest.mark.parametrize(
    ("size", "kernel", "stride"), [((7, 10), (3, 4), 2), ((42, 42), 4, 2), ((11, 9), 3, 3)]
)
def test_padding_gives_the_announced_size(size: tuple[int, int], kernel: object, stride: int) -> None:
    padding, outputs = same_padding(size, kernel, stride)  # type: ignore[arg-type]
    images = torch.nn.ZeroPad2d(padding)(torch.zeros(1, 1, *size))
    assert torch.nn.Conv2d(1, 1, kernel, stride)(images).shape[2:] == outputs
    unpadded = torch.nn.Conv2d(1, 1, kernel, stride)(torch.zeros(1, 1, *size))
    assert unpadded.shape[2:] == valid_padding(size, kernel, stride)  # type: ignore[arg-type]


def test_rows_of_weights_have_the_length() -> None:
    weight = torch.nn.Linear(5, 3).weight
    normc_initializer(0.5)(weight)
    assert torch.allclose(weight.norm(dim=1), torch.full((3,), 0.5))


def test_activations_by_name() -> None:
    assert get_activation_fn("relu") is torch.nn.ReLU
    assert get_activation_fn("linear") is None
    assert get_activation_fn(torch.nn.Tanh) is torch.nn.Tanh
    with pytest.raises(ValueError, match="of torch only"):
        get_activation_fn("relu", "tf2")
