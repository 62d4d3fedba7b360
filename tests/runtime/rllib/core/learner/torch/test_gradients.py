from __future__ import annotations

import math

import pytest
import torch

from runtime.rllib.core.learner.torch.gradients import clip, global_norm
from runtime.rllib.core.learner.torch.losses import explained_variance, mean


def gradients() -> list[torch.Tensor]:
    return [torch.tensor([3.0, -4.0]), torch.tensor([[12.0]])]


def test_the_global_norm_is_that_of_all_numbers() -> None:
    assert float(global_norm(gradients())) == pytest.approx(13)


def test_clipping_by_value_bounds_each_number() -> None:
    given = gradients()
    assert clip(given, 3.5, "value") is None
    assert [each.flatten().tolist() for each in given] == [[3.0, -3.5], [3.5]]


def test_clipping_by_norm_bounds_each_tensor() -> None:
    given = gradients()
    assert clip(given, 6.0, "norm") is None
    assert given[0].tolist() == [3.0, -4.0]
    assert float(given[1]) == pytest.approx(6)


@pytest.mark.parametrize("bound", [1.0, 100.0])
def test_clipping_by_global_norm_scales_all_alike(bound: float) -> None:
    given = gradients()
    before = clip(given, bound, "global_norm")
    assert before is not None
    assert float(before) == pytest.approx(13)
    assert float(global_norm(given)) == pytest.approx(min(13, bound), rel=1e-4)
    assert float(given[0][0] / given[0][1]) == pytest.approx(-0.75)


def test_another_way_of_clipping_is_refused() -> None:
    with pytest.raises(ValueError, match="'global_norm', not 'l3'"):
        clip(gradients(), 1.0, "l3")


def test_masked_rows_do_not_count_even_if_they_are_not_finite() -> None:
    values = torch.tensor([1.0, 2.0, math.nan])
    mask = torch.tensor([True, True, False])
    assert float(mean(values, mask)) == 1.5
    assert float(mean(values[:2], None)) == 1.5


def test_explained_variance() -> None:
    targets = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert float(explained_variance(targets, targets)) == 1
    assert float(explained_variance(targets, torch.full((4,), 2.5))) == pytest.approx(0)
    assert float(explained_variance(targets, -10 * targets)) == -1
    mask = torch.tensor([True, True, True, False])
    assert float(explained_variance(targets, torch.tensor([1.0, 2.0, 3.0, 99.0]), mask)) == 1
