"""Replay buffers of batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.rllib.utils.replay_buffers import (
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReservoirReplayBuffer,
    StorageUnit,
)
from runtime.rllib.utils.replay_buffers.utils import sample_min_n_steps_from_buffer


def batch(*numbers: int, **more: Any) -> dict[str, Any]:
    return {"obs": np.array(numbers), "rewards": np.array(numbers, float), **more}


def stored(buffer: ReplayBuffer) -> set[int]:
    return set(buffer.sample(300)["obs"].tolist())


def test_the_newest_time_steps_stay() -> None:
    buffer = ReplayBuffer(4, seed=1)
    buffer.add(batch(1, 2, 3))
    assert stored(buffer) == {1, 2, 3}
    buffer.add(batch(4, 5, 6))
    assert stored(buffer) == {3, 4, 5, 6}
    assert buffer.stats()["added_count"] == 6
    assert buffer.stats()["eviction_started"]
    sample = buffer.sample(5)
    assert (sample["rewards"] == sample["obs"]).all()


def test_units_are_kept_together() -> None:
    fragments = ReplayBuffer(5, StorageUnit.FRAGMENTS, seed=1)
    fragments.add(batch(1, 2, 3))
    fragments.add(batch(4, 5))
    assert fragments.sample(1)["obs"].tolist() in ([1, 2, 3], [4, 5])
    fragments.add(batch(6, 7, 8, 9, 10))
    assert len(fragments) == 1
    sequences = ReplayBuffer(10, "sequences", seed=1)
    sequences.add(batch(1, 2, 3, seq_lens=np.array([1, 2])))
    sample = sequences.sample(20)
    assert sample["seq_lens"].sum() == len(sample["obs"])
    assert len(sequences) == 2
    episodes = ReplayBuffer(10, "episodes", seed=1)
    ends = np.array([False, True, False])
    episodes.add(batch(1, 2, 3, eps_id=np.array([7, 7, 8]), t=np.array([0, 1, 0]), terminateds=ends))
    assert len(episodes) == 1  # the second episode is not complete
    assert episodes.sample(1)["obs"].tolist() == [1, 2]


def test_items_are_drawn_in_proportion_to_their_priorities() -> None:
    buffer = PrioritizedReplayBuffer(4, alpha=1.0, seed=1)
    buffer.add(batch(0, 1, 2, 3))
    buffer.update_priorities([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])
    sample = buffer.sample(10_000, beta=1.0)
    counts = np.bincount(sample["obs"])
    assert np.abs(counts / 10_000 - np.array([0.1, 0.2, 0.3, 0.4])).max() < 0.01
    assert np.allclose(sample["weights"], 1 / (sample["obs"] + 1.0))
    assert (sample["batch_indexes"] == sample["obs"]).all()
    buffer.add(batch(9))  # takes the place of 0, with the largest priority
    assert buffer.sample(10_000)["obs"].tolist().count(9) == pytest.approx(10_000 * 4 / 13, rel=0.05)
    with pytest.raises(ValueError, match="greater than 0"):
        buffer.update_priorities([0], [0.0])
    with pytest.raises(ValueError, match="greater than 0"):
        PrioritizedReplayBuffer(4, alpha=0)


def test_priorities_move_with_their_items() -> None:
    buffer = PrioritizedReplayBuffer(6, "fragments", alpha=1.0, seed=1)
    for first in (0, 10, 20):
        buffer.add(batch(first, first + 1))
    buffer.update_priorities([0, 1, 2], [1.0, 2.0, 3.0])
    buffer.add(batch(30, 31, 32))  # takes the room of the first two
    assert len(buffer) == 2
    counts = np.bincount(buffer.sample(5000)["batch_indexes"] * 10 + 1)
    assert set(np.flatnonzero(counts)) == {1, 11}
    assert buffer.stats()["num_entries"] == 2


def test_a_reservoir_holds_a_uniform_sample_of_everything() -> None:
    held = np.zeros(50)
    for seed in range(300):
        buffer = ReservoirReplayBuffer(10, seed=seed)
        buffer.add(batch(*range(50)))
        assert len(buffer) == 10
        held[[int(item["obs"][0]) for item in buffer._storage]] += 1
    assert np.abs(held / 300 - 0.2).max() < 0.1
    assert buffer.stats()["num_add_calls"] == 50


class Batch(dict[str, Any]):
    """A user's type of batch."""


@pytest.mark.parametrize("cls", [ReplayBuffer, PrioritizedReplayBuffer, ReservoirReplayBuffer])
def test_a_buffer_with_the_state_of_another_has_its_items(cls: type[ReplayBuffer]) -> None:
    first, second = cls(5, seed=1), cls(5, seed=2)
    first.add(Batch(batch(1, 2, 3)))
    second.set_state(first.get_state())
    assert stored(second) == {1, 2, 3}
    assert type(second.sample(2)) is Batch


def test_a_minimum_of_time_steps_is_drawn() -> None:
    buffer = ReplayBuffer(20, "fragments", seed=1)
    buffer.add(batch(1, 2, 3))
    assert len(sample_min_n_steps_from_buffer(buffer, 7)["obs"]) == 9
    with pytest.raises(ValueError, match="empty buffer"):
        sample_min_n_steps_from_buffer(ReplayBuffer(20), 7)


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="'timesteps', 'sequences', 'episodes', 'fragments', but is 'rows'"):
        ReplayBuffer(5, "rows")
    with pytest.raises(ValueError, match="greater than 0"):
        ReplayBuffer(0)
    with pytest.raises(ValueError, match="'seq_lens'"):
        ReplayBuffer(5, "sequences").add(batch(1))
