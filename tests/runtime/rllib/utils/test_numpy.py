from __future__ import annotations

from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from runtime.rllib.utils import numpy as functions

finite = st.floats(-50, 50, width=32)
vectors = hnp.arrays(np.float64, st.integers(1, 6), elements=finite)
fast = settings(max_examples=50, deadline=None)


@fast
@given(vectors)
def test_softmax_is_a_distribution_that_shifts_do_not_change(x: np.ndarray) -> None:
    probs = functions.softmax(x)
    assert probs.sum() == pytest.approx(1, abs=1e-4)
    assert probs.min() >= 1e-6
    np.testing.assert_allclose(functions.softmax(x + 3.0), probs, atol=1e-9)


@fast
@given(vectors)
def test_sigmoid_is_symmetric_and_softmax_of_two(x: np.ndarray) -> None:
    s = functions.sigmoid(x)
    np.testing.assert_allclose(s + functions.sigmoid(-x), 1.0)
    np.testing.assert_allclose(functions.softmax(np.stack((x, 0 * x)), axis=0, epsilon=0.0)[0], s, atol=1e-9)
    np.testing.assert_allclose(functions.sigmoid(s, derivative=True), s * (1 - s))


@fast
@given(vectors, st.floats(0.1, 5))
def test_huber_loss_is_quadratic_then_linear(x: np.ndarray, delta: float) -> None:
    for value, loss in zip(x, functions.huber_loss(x, delta), strict=True):
        expected = value**2 / 2 if abs(value) <= delta else delta * (abs(value) - delta / 2)
        assert loss == pytest.approx(expected, abs=1e-9)


@fast
@given(hnp.arrays(np.int64, hnp.array_shapes(max_dims=3), elements=st.integers(0, 5)))
def test_one_hot_vectors_have_their_one_at_the_integer(x: np.ndarray) -> None:
    vectors = functions.one_hot(x, 6)
    assert vectors.shape == (*x.shape, 6)
    assert (vectors.argmax(-1) == x).all()
    assert (vectors.sum(-1) == 1).all()
    assert functions.one_hot(x).shape[-1] == x.max() + 1


def test_one_hot_refuses_integers_beyond_its_length() -> None:
    with pytest.raises(ValueError, match="0 to 2"):
        functions.one_hot(np.array([3]), 3)
    assert functions.one_hot(1, 3, on_value=5, off_value=-1).tolist() == [-1, 5, -1]


@fast
@given(vectors, st.floats(0, 0.5))
def test_relu_has_a_slope_below_zero(x: np.ndarray, alpha: float) -> None:
    np.testing.assert_allclose(functions.relu(x, alpha), [v if v > 0 else alpha * v for v in x])


def test_l2_loss_is_half_the_sum_of_squares() -> None:
    assert functions.l2_loss(np.array([1.0, 2.0])) == 2.5


def test_flattened_inputs_are_one_hot_where_spaces_are_discrete() -> None:
    inputs = {"a": np.ones((2, 2, 2)), "b": np.array([1, 2]), "c": (np.array([[0, 1], [1, 2]]),)}
    spaces = {
        "a": gym.spaces.Box(-1, 1, (2, 2)),
        "b": gym.spaces.Discrete(3),
        "c": (gym.spaces.MultiDiscrete([2, 3]),),
    }
    expected = [[1, 1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 0], [1, 1, 1, 1, 0, 0, 1, 0, 1, 0, 0, 1]]
    assert functions.flatten_inputs_to_1d_tensor(inputs, spaces).tolist() == expected
    reordered = dict(reversed(inputs.items()))
    assert functions.flatten_inputs_to_1d_tensor(reordered, spaces).tolist() == expected
    assert functions.flatten_inputs_to_1d_tensor({"b": np.ones((1, 1)), "a": np.zeros((1, 1))}).tolist() == [
        [0, 1]
    ]
    assert functions.flatten_inputs_to_1d_tensor(np.ones((2, 3, 4, 5)), time_axis=True).shape == (2, 3, 20)
    assert functions.flatten_inputs_to_1d_tensor({"a": np.ones((2, 2))}, batch_axis=False).shape == (4,)


def test_immutable_actions_cannot_be_written() -> None:
    action: Any = functions.make_action_immutable({"a": np.zeros(2), "b": (np.zeros(1),)})
    assert isinstance(action, MappingProxyType)
    with pytest.raises(ValueError, match="read-only"):
        action["a"][0] = 1
    with pytest.raises(TypeError):
        action["c"] = 1


def test_trees_of_tensors_become_arrays_of_smaller_types() -> None:
    torch = pytest.importorskip("torch")
    tree = {
        "a": torch.zeros(2, dtype=torch.float64, requires_grad=True),
        "b": (np.zeros(2, np.int64), 3, "x"),
    }
    converted = functions.convert_to_numpy(tree)
    assert (converted["a"].dtype, converted["b"][0].dtype) == (np.float32, np.int32)
    assert converted["b"][1:] == (3, "x")
    assert functions.convert_to_numpy(tree, reduce_type=False)["a"].dtype == np.float64


def test_layers_agree_with_torchs() -> None:
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear(3, 2)
    x = torch.rand(4, 3)
    np.testing.assert_allclose(
        functions.fc(x, linear.weight, linear.bias, framework="torch"), linear(x).detach(), rtol=1e-5
    )
    net = torch.nn.LSTM(3, 5, batch_first=True)
    # torch's gates are input, forget, candidate, output; ours input, candidate, forget, output
    order = [0, 2, 1, 3]

    def reordered(parameter: Any) -> np.ndarray:
        parts = np.split(parameter.detach().numpy(), 4)
        return np.concatenate([parts[i] for i in order])

    weights = np.concatenate((reordered(net.weight_ih_l0), reordered(net.weight_hh_l0)), 1).T
    biases = reordered(net.bias_ih_l0) + reordered(net.bias_hh_l0)
    sequences = torch.rand(2, 6, 3)
    outputs, (c, h) = functions.lstm(sequences.numpy(), weights, biases, forget_bias=0.0)
    expected, (h_torch, c_torch) = net(sequences)
    np.testing.assert_allclose(outputs, expected.detach(), atol=1e-5)
    np.testing.assert_allclose(c, c_torch[0].detach(), atol=1e-5)
    np.testing.assert_allclose(h, h_torch[0].detach(), atol=1e-5)
