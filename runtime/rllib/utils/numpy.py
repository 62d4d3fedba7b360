"""Functions of arrays: activations, losses, one-hot vectors, and conversion from tensors."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np

from .._core import trees

SMALL_NUMBER = 1e-6
LARGE_INTEGER = 100_000_000
MIN_LOG_NN_OUTPUT = -5
MAX_LOG_NN_OUTPUT = 2


def convert_to_numpy(x: Any, reduce_type: bool = True) -> Any:
    """A tree of tensors and arrays as a tree of arrays. Other leaves, such as numbers, stay as they are.

    Args:
        x: the tree. Tensors on the CPU share their memory with the result.
        reduce_type: make floats float32 and signed integers of 64 bits int32.
    """
    torch = sys.modules.get("torch")  # if it is not loaded, there is no tensor

    def convert(item: Any) -> Any:
        if torch is not None and isinstance(item, torch.Tensor):
            item = item.detach().cpu()
            item = item.float().numpy() if item.dtype == torch.bfloat16 else item.numpy()
        if reduce_type and isinstance(item, np.ndarray):
            if np.issubdtype(item.dtype, np.floating):
                return item.astype(np.float32, copy=False)
            if item.dtype == np.int64:
                return item.astype(np.int32)
        return item

    return trees.tree_map(convert, x)


def fc(x: Any, weights: Any, biases: Any = None, framework: str | None = None) -> Any:
    """A fully connected layer: `x @ weights + biases`.

    Args:
        x: [batch, in].
        weights: [in, out]; with framework "torch" [out, in], as torch keeps them.
        biases: [out], or None.
        framework: where weights are from.
    """
    x, weights, biases = (convert_to_numpy(v, reduce_type=False) for v in (x, weights, biases))
    result = np.matmul(x, weights.T if framework == "torch" else weights)
    return result if biases is None else result + biases


def lstm(
    x: Any,
    weights: np.ndarray,
    biases: np.ndarray | None = None,
    initial_internal_states: Any = None,
    time_major: bool = False,
    forget_bias: float = 1.0,
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """An LSTM over sequences.

    Args:
        x: [batch, time, in], or [time, batch, in] if `time_major`.
        weights: [in + units, 4 * units], of the gates input, candidate, forget, output.
        biases: [4 * units], or None.
        initial_internal_states: (c, h), each [batch, units]; None means zeros.
        time_major: the order of x's and the result's dimensions.
        forget_bias: added to the forget gate.

    Returns:
        (outputs [batch, time, units], (c, h)).
    """
    steps = x if time_major else np.swapaxes(x, 0, 1)
    units = weights.shape[1] // 4
    zeros = np.zeros((steps.shape[1], units), dtype=np.float32)
    c, h = initial_internal_states if initial_internal_states is not None else (zeros, zeros)
    outputs = []
    for step in steps:
        gates = fc(np.concatenate((step, h), -1), weights, biases)
        i, candidate, f, o = np.split(gates, 4, -1)
        c = c * sigmoid(f + forget_bias) + sigmoid(i) * np.tanh(candidate)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    unrolled = np.stack(outputs)
    return (unrolled if time_major else np.swapaxes(unrolled, 0, 1)), (c, h)


def flatten_inputs_to_1d_tensor(
    inputs: Any, spaces_struct: Any = None, time_axis: bool = False, batch_axis: bool = True
) -> np.ndarray:
    """Joins the leaves of a tree along the last dimension; values of discrete spaces become one-hot vectors.

    Args:
        inputs: tree of arrays [batch, ...], or [batch, time, ...] with `time_axis`.
        spaces_struct: tree of the leaves' spaces; without it nothing is one-hot encoded.
        time_axis: leaves have a time dimension, which the result keeps.
        batch_axis: leaves have a batch dimension, which the result keeps.

    Returns:
        float32 [batch, (time,) features].
    """
    leading = int(batch_axis) + int(time_axis)
    parts = []
    for leaf, space in leaves_and_spaces(inputs, spaces_struct):
        array = np.asarray(leaf)
        if isinstance(space, gym.spaces.Discrete):
            array = one_hot(array - space.start, int(space.n))
        elif isinstance(space, gym.spaces.MultiDiscrete):
            array = one_hot_multidiscrete(array - space.start, space.nvec.ravel())
        parts.append(array.reshape((*array.shape[:leading], -1)))
    return np.concatenate(parts, -1).astype(np.float32, copy=False)


def leaves_and_spaces(inputs: Any, spaces_struct: Any = None) -> list[tuple[Any, Any]]:
    """Pairs of a leaf and its space, or None: in the order of the tree of spaces; without it, of sorted keys."""
    if spaces_struct is not None:
        pairs: list[tuple[Any, Any]] = []
        trees.tree_map(lambda space, leaf: pairs.append((leaf, space)), spaces_struct, inputs)
        return pairs
    if isinstance(inputs, Mapping):
        return [pair for key in sorted(inputs) for pair in leaves_and_spaces(inputs[key])]
    if isinstance(inputs, tuple | list):
        return [pair for part in inputs for pair in leaves_and_spaces(part)]
    return [(inputs, None)]


def make_action_immutable(obj: Any) -> Any:
    """The object, with arrays made read-only and dicts replaced by read-only views of them."""
    if isinstance(obj, np.ndarray):
        obj.setflags(write=False)
        return obj
    if isinstance(obj, Mapping):
        return MappingProxyType({key: make_action_immutable(value) for key, value in obj.items()})
    if isinstance(obj, tuple | list):
        parts = [make_action_immutable(value) for value in obj]
        return type(obj)(*parts) if hasattr(obj, "_fields") else type(obj)(parts)
    return obj


def huber_loss(x: np.ndarray, delta: float = 1.0) -> np.ndarray:
    """Elementwise: x^2 / 2 up to |x| = delta, then linear."""
    size = np.abs(x)
    return np.where(size < delta, 0.5 * np.square(x), delta * (size - 0.5 * delta))


def l2_loss(x: np.ndarray) -> Any:
    """Half of the sum of squares."""
    return 0.5 * np.sum(np.square(x))


def one_hot(
    x: Any, depth: int = 0, on_value: float = 1.0, off_value: float = 0.0, dtype: type = np.float32
) -> np.ndarray:
    """One-hot vectors of integers: [...] -> [..., depth].

    Args:
        x: the integers.
        depth: length of a vector; 0 means the largest integer plus one.
        on_value: value at the integer's place.
        off_value: value at the other places.
        dtype: of the result.

    Raises:
        ValueError: an integer is negative or not less than `depth`.
    """
    index = np.asarray(convert_to_numpy(x, reduce_type=False)).astype(np.int64)
    depth = int(depth) or int(index.max()) + 1
    if index.size and (index.min() < 0 or index.max() >= depth):
        raise ValueError(
            f"One-hot vectors of length {depth} hold 0 to {depth - 1}, not {index.min()} to {index.max()}"
        )
    result = np.full((*index.shape, depth), off_value, dtype=dtype)
    np.put_along_axis(result, index[..., None], on_value, axis=-1)
    return result


def one_hot_multidiscrete(x: Any, depths: Sequence[int] | np.ndarray) -> np.ndarray:
    """One-hot vectors of each column, joined: [..., n] -> [..., sum of depths]."""
    index = np.asarray(convert_to_numpy(x, reduce_type=False))
    index = index.reshape((*index.shape[: index.ndim - 1], -1))
    return np.concatenate([one_hot(index[..., i], int(depth)) for i, depth in enumerate(depths)], -1)


def relu(x: Any, alpha: float = 0.0) -> np.ndarray:
    """Elementwise max(x, alpha * x); `alpha` is the slope for negative values."""
    return np.maximum(x, np.multiply(x, alpha))


def sigmoid(x: Any, derivative: bool = False) -> np.ndarray:
    """Elementwise 1 / (1 + exp(-x)); with `derivative` x(1 - x), the slope where the sigmoid is x."""
    x = np.asarray(x)
    if derivative:
        return x * (1 - x)
    return 0.5 * (1 + np.tanh(0.5 * x))  # exp(-x) overflows for large negative values


def softmax(x: Any, axis: int = -1, epsilon: float | None = None) -> np.ndarray:
    """Probabilities along an axis, none less than `epsilon` (1e-6)."""
    x = np.asarray(x)
    exps = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return np.maximum(
        exps / np.sum(exps, axis=axis, keepdims=True), SMALL_NUMBER if epsilon is None else epsilon
    )
