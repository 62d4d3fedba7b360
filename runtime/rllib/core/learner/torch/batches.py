"""Rollouts as tensors: rows as they are, or sequences with padding for recurrent modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...._core import trees
from ...._core.rollout import Rollout
from ...._core.trees import Tree
from ...columns import Columns

VALUE_ROWS = 8192
"""Rows of one forward pass over a whole batch: bounds the memory of activations."""


def as_tensor(array: Any, device: torch.device) -> torch.Tensor:
    """The array on the device, without a copy where it is on the CPU. float64 becomes float32."""
    if isinstance(array, torch.Tensor):
        tensor = array
    else:
        array = np.asarray(array)
        if not array.flags.writeable:
            array = array.copy()  # torch warns about tensors of memory that must not change
        tensor = torch.from_numpy(array)
    if tensor.dtype == torch.float64:
        tensor = tensor.float()
    return tensor if tensor.device == device else tensor.to(device)


def tensors(tree: Tree, device: torch.device) -> Tree:
    """The tree with tensors on the device. Leaves that are no numbers are left out by the caller."""
    return trees.tree_map(lambda leaf: as_tensor(leaf, device), tree)


def take(tree: Tree, index: torch.Tensor) -> Tree:
    """These rows of all tensors; copies."""
    return trees.tree_map(lambda leaf: leaf.index_select(0, index), tree)


def with_final_rows(rollout: Rollout) -> tuple[Rollout, np.ndarray]:
    """The rollout with one row more at each segment's end, for its final observation.

    Returns:
        The longer rollout, whose other columns are zeros in the new rows, and bool [rows + S], False in the new rows.
    """
    segments = rollout.segments
    rows = rollout.rows + len(segments)
    ends = segments.last_rows + 1 + np.arange(len(segments))
    is_own = np.ones(rows, bool)
    is_own[ends] = False

    def widened(leaf: np.ndarray, last: np.ndarray | None = None) -> np.ndarray:
        leaf = np.asarray(leaf)
        result = np.empty((rows, *leaf.shape[1:]), leaf.dtype)
        result[is_own] = leaf
        result[ends] = 0 if last is None else last
        return result

    columns = {
        name: trees.tree_map(widened, column)
        for name, column in rollout.columns.items()
        if name != Columns.OBS
    }
    columns[Columns.OBS] = trees.tree_map(widened, rollout.columns[Columns.OBS], rollout.final_obs)
    longer = dataclasses.replace(segments, lengths=segments.lengths + 1)
    return Rollout(columns, longer, rollout.final_obs, rollout.state_in), is_own


class Sequences:
    """Where each row of a rollout is in sequences [B, T] of at most `length` rows.

    Segments are cut into sequences of `length` rows, one after another; the last one of a segment may be shorter, and
    is padded at its end.
    """

    def __init__(self, rollout: Rollout, length: int) -> None:
        lengths = rollout.segments.lengths
        per_segment = -(-lengths // length)
        self.length = length
        self.count = int(per_segment.sum())
        self.segment = np.repeat(np.arange(len(lengths)), per_segment)  # of each sequence
        first = np.cumsum(per_segment) - per_segment
        self.part = np.arange(self.count) - np.repeat(
            first, per_segment
        )  # which of its segment's sequences it is
        step = np.arange(rollout.rows) - np.repeat(rollout.segments.starts, lengths)  # in the segment
        self.row_sequence = np.repeat(first, lengths) + step // length
        self.row_step = step % length

    def padded(self, column: Tree) -> Tree:
        """[rows, ...] -> [B, T, ...], zeros where nothing is."""

        def pad(leaf: np.ndarray) -> np.ndarray:
            result = np.zeros((self.count, self.length, *leaf.shape[1:]), leaf.dtype)
            result[self.row_sequence, self.row_step] = leaf
            return result

        return trees.tree_map(pad, column)

    def rows(self, padded: np.ndarray) -> np.ndarray:
        """[B, T, ...] -> [rows, ...]."""
        return padded[self.row_sequence, self.row_step]


def in_blocks(function: Callable[[int, int], np.ndarray], rows: int) -> np.ndarray:
    """`function(start, stop)` for blocks of at most `VALUE_ROWS` rows, joined."""
    if rows <= VALUE_ROWS:
        return function(0, rows)
    return np.concatenate([function(i, min(i + VALUE_ROWS, rows)) for i in range(0, rows, VALUE_ROWS)])


def row_values(module: Any, obs: Tree, rows: int, device: torch.device) -> np.ndarray:
    """float32 [rows], the module's values of these observations (a tree of arrays or tensors [rows, ...])."""

    def block(start: int, stop: int) -> np.ndarray:
        part = tensors(trees.take(obs, slice(start, stop)), device)
        values = module.compute_values({Columns.OBS: part})
        return np.asarray(values.detach().float().cpu())

    with torch.no_grad():
        return in_blocks(block, rows)


def through_sequences(
    module: Any, rollout: Rollout, sequences: Sequences, device: torch.device, *, has_values: bool
) -> tuple[np.ndarray, Tree]:
    """Lets a recurrent module pass through all segments, sequence after sequence, without gradients.

    Args:
        module: the module.
        rollout: the rows; its `state_in` is where segments start, or the module's initial state if it is None.
        sequences: of these rows.
        device: the module's.
        has_values: whether to compute values; otherwise they are 0.

    Returns:
        values: float32 [rows].
        state_in: tree of arrays [B, ...], the state before each sequence.
    """
    count = len(rollout.segments)
    padded_obs = sequences.padded(rollout.columns[Columns.OBS])
    values = np.zeros((sequences.count, sequences.length), np.float32)
    states: list[Tree] = [None] * sequences.count
    state: Tree = rollout.state_in  # before the next sequence of each segment
    if state is None:
        initial = module.get_initial_state()
        state = trees.tree_map(lambda leaf: np.repeat(_array(leaf)[None], count, axis=0), initial)
    with torch.no_grad():
        for part in range(int(sequences.part.max(initial=-1)) + 1):
            chosen = np.flatnonzero(sequences.part == part)
            owners = sequences.segment[chosen]
            begin = trees.take(state, owners)
            for i, number in enumerate(chosen):
                states[number] = trees.take(begin, i)
            batch = {
                Columns.OBS: tensors(trees.take(padded_obs, chosen), device),
                Columns.STATE_IN: tensors(begin, device),
            }
            out = module.forward_train(batch)
            if has_values:
                computed = module.compute_values(batch, embeddings=out.get(Columns.EMBEDDINGS))
                values[chosen] = computed.float().cpu().numpy()
            # Padding changes the states of segments that end here, which are not needed any more.
            state = _replaced(state, owners, out[Columns.STATE_OUT])
    return sequences.rows(values), trees.stack(states)


def _array(leaf: Any) -> np.ndarray:
    return leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else np.asarray(leaf)


def _replaced(state: Tree, index: np.ndarray, new: Tree) -> Tree:
    def put(leaf: np.ndarray, part: torch.Tensor) -> np.ndarray:
        result = np.array(leaf)
        result[index] = part.cpu().numpy()
        return result

    return trees.tree_map(put, state, new)
