from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from runtime.rllib._core.rollout import Rollout
from runtime.rllib.core.learner.torch.batches import (
    Sequences,
    as_tensor,
    row_values,
    through_sequences,
    with_final_rows,
)
from tests.runtime.rllib._core.making import rollout

CPU = torch.device("cpu")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("length", [1, 4, 50])
def test_padded_rows_are_in_their_sequences_and_come_back(seed: int, length: int) -> None:
    made = rollout(np.random.default_rng(seed), 5, 12)
    sequences = Sequences(made, length)
    numbers = np.arange(made.rows) + 1
    padded = sequences.padded(numbers)
    assert padded.shape == (sequences.count, length)
    assert sequences.rows(padded).tolist() == numbers.tolist()
    assert padded[padded > 0].tolist() == numbers.tolist()  # in order, sequence after sequence
    starts = made.segments.starts + 1
    assert set(starts) <= set(padded[:, 0])  # no sequence has rows of two segments
    assert (np.diff(padded, axis=1)[padded[:, 1:] > 0] == 1).all()


def test_final_rows_stand_at_the_ends_of_segments() -> None:
    made = rollout(np.random.default_rng(3), 3, 6)
    longer, is_own = with_final_rows(made)
    assert longer.rows == made.rows + 3
    np.testing.assert_array_equal(longer.columns["obs"][is_own], made.columns["obs"])
    np.testing.assert_array_equal(longer.columns["obs"][~is_own], made.final_obs)
    np.testing.assert_array_equal(longer.columns["rewards"][is_own], made.columns["rewards"])
    assert not longer.columns["rewards"][~is_own].any()
    assert np.flatnonzero(~is_own).tolist() == longer.segments.last_rows.tolist()


class Accumulating:
    """A recurrent module whose state, and value, is the sum of what it has seen: sequences must not lose it."""

    def get_initial_state(self) -> dict[str, torch.Tensor]:
        return {"sum": torch.zeros(1)}

    def forward_train(self, batch: dict[str, Any]) -> dict[str, Any]:
        sums = batch["state_in"]["sum"] + batch["obs"].sum(-1).cumsum(1)
        return {"embeddings": sums, "state_out": {"sum": sums[:, -1:]}}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Any:
        return embeddings


def summed(made: Rollout, start: np.ndarray) -> np.ndarray:
    result, row = [], 0
    for segment, length in enumerate(made.segments.lengths):
        total = start[segment]
        for _ in range(length):
            total += made.columns["obs"][row].sum()
            result.append(total)
            row += 1
    return np.array(result)


@pytest.mark.parametrize("length", [1, 3, 100])
@pytest.mark.parametrize("has_state", [False, True])
def test_states_go_on_from_sequence_to_sequence(length: int, has_state: bool) -> None:
    made = rollout(np.random.default_rng(4), 4, 10)
    start = np.array([1.0, 2.0, 3.0, 4.0], np.float32) if has_state else np.zeros(4, np.float32)
    made.state_in = {"sum": start[:, None]} if has_state else None
    sequences = Sequences(made, length)
    values, state_in = through_sequences(Accumulating(), made, sequences, CPU, has_values=True)
    expected = summed(made, start)
    np.testing.assert_allclose(values, expected, rtol=1e-4)
    before = np.concatenate([[0], expected[:-1]])
    before[made.segments.starts] = start
    firsts = sequences.padded(np.arange(made.rows))[:, 0]
    np.testing.assert_allclose(state_in["sum"][:, 0], before[firsts], rtol=1e-4)


def test_values_of_many_rows_are_computed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.rllib.core.learner.torch.batches.VALUE_ROWS", 4)
    seen = []

    class Summing:
        def compute_values(self, batch: dict[str, Any]) -> Any:
            seen.append(len(batch["obs"]["x"]))
            return batch["obs"]["x"].sum(-1)

    obs = {"x": np.arange(20, dtype=np.float32).reshape(10, 2)}
    np.testing.assert_array_equal(row_values(Summing(), obs, 10, CPU), obs["x"].sum(-1))
    assert seen == [4, 4, 2]


def test_arrays_become_tensors_without_a_copy_unless_they_must_not_change() -> None:
    array = np.zeros(3, np.float32)
    as_tensor(array, CPU)[0] = 1
    assert array[0] == 1
    array.flags.writeable = False
    as_tensor(array, CPU)[1] = 1
    assert array[1] == 0
    assert as_tensor(np.zeros(2), CPU).dtype == torch.float32
    assert as_tensor([1, 2], CPU).dtype == torch.int64
