from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from runtime.rllib.utils import torch_utils as functions
from runtime.rllib.utils.framework import convert_to_tensor, try_import_jax, try_import_tf, try_import_torch

fast = settings(max_examples=50, deadline=None)


def test_trees_become_tensors_without_warnings() -> None:
    fixed = np.zeros(2)
    fixed.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = functions.convert_to_torch_tensor(
            {"a": fixed, "b": (np.arange(2), 3.0), "c": None, "d": "x", "e": np.array([None])}
        )
    assert tree["a"].dtype == torch.float32
    assert tree["b"][0].dtype == torch.int64
    assert tree["b"][1].item() == 3.0
    assert (tree["c"], tree["d"], tree["e"][0]) == (None, "x", None)
    assert convert_to_tensor([1, 2], "torch")[1].item() == 2


def test_copies_are_apart() -> None:
    tensor = torch.zeros(2)
    copied = functions.copy_torch_tensors({"a": tensor, "b": 1})
    tensor += 1
    assert copied["a"].tolist() == [0, 0]
    assert copied["b"] == 1


@fast
@given(st.lists(st.floats(-10, 10, width=32), min_size=4, max_size=4), st.floats(0.1, 10))
def test_clipped_gradients_are_within_their_limit(values: list[float], limit: float) -> None:
    def gradients() -> dict[str, torch.Tensor | None]:
        return {"a": torch.tensor(values[:1]), "b": torch.tensor(values[1:]).reshape(3, 1), "none": None}

    before = np.linalg.norm(values)
    clipped = gradients()
    norm = functions.clip_gradients(clipped, grad_clip=limit, grad_clip_by="global_norm")
    assert norm.item() == pytest.approx(before, abs=1e-4)
    kept = torch.cat([g.ravel() for g in clipped.values() if g is not None])
    np.testing.assert_allclose(kept, np.array(values) * min(1, limit / max(before, 1e-9)), atol=1e-4)

    clipped = gradients()
    functions.clip_gradients(clipped, grad_clip=limit, grad_clip_by="value")
    assert clipped["b"].ravel().tolist() == pytest.approx(
        np.clip(values[1:], -limit, limit).tolist(), abs=1e-5
    )

    clipped = gradients()
    functions.clip_gradients(clipped, grad_clip=limit, grad_clip_by="norm")
    assert clipped["b"].norm().item() == pytest.approx(min(limit, np.linalg.norm(values[1:])), abs=1e-4)


def test_no_limit_and_unknown_kinds_of_clipping() -> None:
    gradients = {"a": torch.ones(2)}
    assert functions.clip_gradients(gradients) is None
    assert gradients["a"].tolist() == [1, 1]
    with pytest.raises(ValueError, match="global_norm"):
        functions.clip_gradients(gradients, grad_clip=1.0, grad_clip_by="norms")
    assert functions.compute_global_norm([]).item() == 0


def test_explained_variance() -> None:
    y = torch.tensor([1.0, 2.0, 3.0])
    assert functions.explained_variance(y, y).item() == 1
    assert functions.explained_variance(y, y.mean().expand(3)).item() == pytest.approx(0, abs=1e-6)
    assert functions.explained_variance(y, -5 * y).item() == -1
    assert functions.explained_variance(torch.ones(3), torch.ones(3)).item() == 1


@fast
@given(st.floats(-1e4, 1e4, width=32))
def test_symlog_and_its_inverse(x: float) -> None:
    value = torch.tensor(x, dtype=torch.float64)
    assert functions.inverse_symlog(functions.symlog(value)).item() == pytest.approx(x, rel=1e-9, abs=1e-9)
    assert functions.symlog(-value).item() == -functions.symlog(value).item()


@fast
@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=5))
def test_two_hot_vectors_have_the_values_as_means(values: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float64)
    vectors = functions.two_hot(x, 41, -20.0, 20.0)
    np.testing.assert_allclose(
        vectors @ torch.linspace(-20, 20, 41, dtype=torch.float64), x.clamp(-20, 20), atol=1e-9
    )
    assert (vectors.count_nonzero(-1) <= 2).all()
    np.testing.assert_allclose(vectors.sum(-1), 1.0)


def test_masks_of_sequences() -> None:
    lengths = torch.tensor([1, 3])
    assert functions.sequence_mask(lengths).tolist() == [[True, False, False], [True, True, True]]
    assert functions.sequence_mask(lengths, 2, time_major=True).tolist() == [[True, True], [False, True]]


def test_one_hot_vectors_of_spaces() -> None:
    assert functions.one_hot(torch.tensor([3, 5]), gym.spaces.Discrete(3, start=3)).tolist() == [
        [1, 0, 0],
        [0, 0, 1],
    ]
    multi = functions.one_hot(torch.tensor([[1, 2], [0, 0]]), gym.spaces.MultiDiscrete([2, 3]))
    assert multi.tolist() == [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0]]
    with pytest.raises(ValueError, match="Discrete"):
        functions.one_hot(torch.tensor([1]), gym.spaces.Box(0, 1))


def test_flattened_inputs_agree_with_those_of_numpy() -> None:
    from runtime.rllib.utils.numpy import flatten_inputs_to_1d_tensor

    spaces = {"a": gym.spaces.Discrete(3), "b": gym.spaces.Box(0, 1, (2, 2))}
    inputs = {"a": np.array([[0, 2]]), "b": np.arange(8.0).reshape(1, 2, 2, 2)}
    tensors = {key: torch.as_tensor(value) for key, value in inputs.items()}
    expected = flatten_inputs_to_1d_tensor(inputs, spaces, time_axis=True)
    np.testing.assert_array_equal(
        functions.flatten_inputs_to_1d_tensor(tensors, spaces, time_axis=True), expected
    )


def test_losses_and_means() -> None:
    assert functions.huber_loss(torch.tensor([0.5, -2.0])).tolist() == [0.125, 1.5]
    assert functions.l2_loss(torch.tensor([1.0, 2.0])).item() == 2.5
    logits, labels = torch.rand(2, 3), torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(functions.softmax_cross_entropy_with_logits(logits, labels), expected)
    x = torch.tensor([[1.0, float("inf")], [3.0, 5.0]])
    assert functions.reduce_mean_ignore_inf(x).item() == 3
    assert functions.reduce_mean_ignore_inf(x, 0).tolist() == [2, 5]


def test_target_networks_move_towards_the_main_one() -> None:
    main, target = torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2)
    with torch.no_grad():
        main.weight.fill_(3.0)
        main.running_mean.fill_(7.0)
    functions.update_target_network(main, target, tau=0.25)
    assert target.weight.tolist() == [1.5, 1.5]
    assert target.running_mean.tolist() == [7, 7]


def test_frameworks() -> None:
    assert try_import_torch() == (torch, torch.nn)
    assert try_import_tf() == (None, None, None)
    with pytest.raises(ImportError, match="JAX"):
        try_import_jax(error=True)
    with pytest.raises(ValueError, match="torch"):
        convert_to_tensor([1], "tf2")


def test_arrays_that_torch_does_not_take_are_copied() -> None:
    backwards = functions.convert_to_torch_tensor(np.arange(3)[::-1])
    assert backwards.tolist() == [2, 1, 0]
    assert functions.convert_to_torch_tensor(np.array([70_000], np.uint32)).dtype == torch.int64
