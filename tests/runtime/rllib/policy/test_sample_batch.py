"""Batches of columns."""

import numpy as np
import pytest

from runtime.rllib.policy.sample_batch import (
    MultiAgentBatch,
    SampleBatch,
    concat_samples,
    concat_samples_into_ma_batch,
)


def batch(rows=6):
    return SampleBatch({"obs": np.arange(rows * 2).reshape(rows, 2), "eps_id": [0] * (rows - 2) + [1, 1]})


def test_rows_slices_and_columns():
    some = batch()
    assert len(some) == some.count == some.env_steps() == 6
    assert some[1]["obs"].tolist() == [2, 3]
    assert some[2:4]["obs"].tolist() == [[4, 5], [6, 7]]
    assert [len(part) for part in some.split_by_episode()] == [4, 2]
    assert [len(part) for part in some.timeslices(size=4)] == [4, 2]
    assert [len(part) for part in some.timeslices(num_slices=3)] == [2, 2, 2]
    assert sorted(some.copy().shuffle()["obs"][:, 0]) == [0, 2, 4, 6, 8, 10]
    assert some["obs"][0].tolist() == [0, 1]  # the copy was shuffled


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="differ in length"):
        SampleBatch({"obs": np.zeros(3), "rewards": np.zeros(4)})


def test_batches_are_joined_by_module():
    joined = concat_samples([batch(), SampleBatch(), batch(3)])
    assert isinstance(joined, SampleBatch)
    assert joined.count == 9
    both = concat_samples_into_ma_batch([batch().as_multi_agent("a"), batch(3).as_multi_agent("b"), batch(4)])
    assert isinstance(both, MultiAgentBatch)
    assert {name: part.count for name, part in both.items()} == {"a": 6, "b": 3, "default_policy": 4}
    assert both.env_steps() == both.agent_steps() == 13
    with pytest.raises(ValueError, match="different columns"):
        concat_samples([batch(), SampleBatch({"obs": np.zeros((2, 2))})])
