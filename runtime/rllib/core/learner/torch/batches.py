"""Rollouts as tensors: rows as they are, or sequences with padding for recurrent modules."""

from __future__ import annotations

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


def with_final_rows(rollout: Rollout, column: Tree, final: Tree) -> Tree:
    """The column with one row more at each segment's end: that of `final` [S, ...]."""
    segments = rollout.segments
    rows = rollout.rows + len(segments)
    ends = segments.last_rows + 1 + np.arange(len(segments))
    is_own = np.ones(rows, bool)
    is_own[ends] = False

    def widened(leaf: np.ndarray, last: np.ndarray) -> np.ndarray:
        result = np.empty((rows, *leaf.shape[1:]), leaf.dtype)
        result[is_own] = leaf
        result[ends] = last
        return result

    return trees.tree_map(widened, column, final)


class Sequences:
    """Where each row of a rollout is in sequences [B, T] of at most `length` rows.

    Segments are cut into sequences of `length` rows; the last one of a segment may be shorter, and is padded at its
    end. With `has_final` a segment has one row more, its final observation's.
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

    def mask(self) -> np.ndarray:
        """bool [B, T], True where there is a row."""
        result = np.zeros((self.count, self.length), bool)
        result[self.row_sequence, self.row_step] = True
        return result


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


def sequence_values(
    module: Any, rollout: Rollout, sequences: Sequences, device: torch.device
) -> tuple[np.ndarray, np.ndarray, Tree]:
    """What a recurrent module computes of a rollout, sequence after sequence of each segment.

    Returns:
        values: float32 [rows].
        final_values: float32 [S], of the observations after the segments.
        state_in: tree of arrays [B, ...], the state before each sequence.
    """
    segments = rollout.segments
    padded_obs = sequences.padded(rollout.columns[Columns.OBS])
    values = np.zeros((sequences.count, sequences.length), np.float32)
    states: list[Tree] = [None] * sequences.count
    final_values = np.zeros(len(segments), np.float32)
    state: Tree = rollout.state_in  # before the next sequence of each segment
    with torch.no_grad():
        for part in range(int(sequences.part.max(initial=-1)) + 1):
            chosen = np.flatnonzero(sequences.part == part)
            owners = sequences.segment[chosen]
            begin = trees.take(state, owners)
            batch = {
                Columns.OBS: tensors(trees.take(padded_obs, chosen), device),
                Columns.STATE_IN: tensors(begin, device),
            }
            for i, number in enumerate(chosen):
                states[number] = trees.take(begin, i)
            values[chosen], after = _values_and_state(module, batch)
            state = _replaced(state, owners, after)
        # The state after a segment's last sequence is that after its padding. Only what ends with a full sequence has
        # its final observation's state there, so the final rows run through a last, shorter pass of their own.
        tail = _tails(rollout, sequences, states)
        batch = {
            Columns.OBS: tensors(tail[0], device),
            Columns.STATE_IN: tensors(tail[1], device),
        }
        tail_values, _ = _values_and_state(module, batch)
        final_values[:] = tail_values[np.arange(len(segments)), tail[2]]
    return sequences.rows(values), final_values, trees.stack(states)


def _values_and_state(module: Any, batch: dict[str, Any]) -> tuple[np.ndarray, Tree]:
    out = module.forward_train(batch)
    values = module.compute_values(batch, embeddings=out.get(Columns.EMBEDDINGS))
    state = trees.tree_map(lambda leaf: leaf.detach().cpu().numpy(), out[Columns.STATE_OUT])
    return values.detach().float().cpu().numpy(), state


def _replaced(state: Tree, index: np.ndarray, new: Tree) -> Tree:
    def put(leaf: np.ndarray, part: np.ndarray) -> np.ndarray:
        result = np.array(leaf)
        result[index] = part
        return result

    return trees.tree_map(put, state, new)


def _tails(rollout: Rollout, sequences: Sequences, states: list[Tree]) -> tuple[Tree, Tree, np.ndarray]:
    """The last sequence of each segment with its final observation appended.

    Returns:
        obs: tree of arrays [S, T + 1, ...].
        state_in: tree of arrays [S, ...].
        where: int [S], the step of the final observation.
    """
    segments = rollout.segments
    last = np.flatnonzero(np.diff(sequences.segment, append=len(segments)))  # each segment's last sequence
    where = segments.lengths - sequences.part[last] * sequences.length
    padded = trees.take(sequences.padded(rollout.columns[Columns.OBS]), last)

    def appended(leaf: np.ndarray, final: np.ndarray) -> np.ndarray:
        result = np.concatenate([leaf, np.zeros_like(leaf[:, :1])], axis=1)
        result[np.arange(len(segments)), where] = final
        return result

    obs = trees.tree_map(appended, padded, rollout.final_obs)
    return obs, trees.stack([states[number] for number in last]), where
