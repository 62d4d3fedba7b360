from __future__ import annotations

import numpy as np
import pytest

from runtime.rllib._core.gae import advantages_and_targets
from runtime.rllib._core.rollout import concatenate
from runtime.rllib._core.sharding import shards, shards_by_module
from tests.runtime.rllib._core.making import rollout


@pytest.mark.parametrize("seed", range(10))
def test_shards_have_all_rows_once_in_nearly_equal_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole, count = rollout(rng, int(rng.integers(1, 6)), 30), int(rng.integers(2, 5))
    if whole.rows < count:
        pytest.skip("too few rows for this seed")
    parts = shards(whole, count)
    assert max(part.rows for part in parts) - min(part.rows for part in parts) <= 1
    for part in parts:
        assert part.segments.lengths.sum() == part.rows
        assert (part.segments.lengths > 0).all()
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(np.concatenate([part.columns[name] for part in parts]), column)


@pytest.mark.parametrize("seed", range(10))
def test_what_follows_a_row_and_how_it_ended_is_the_same_in_its_shard(seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = rollout(rng, 4, 20)
    joined = concatenate(shards(whole, 3))
    np.testing.assert_array_equal(joined.next_obs(), whole.next_obs())
    np.testing.assert_array_equal(joined.terminateds(), whole.terminateds())
    np.testing.assert_array_equal(joined.truncateds(), whole.truncateds())
    # One-step advantages look no further than the next row, so cuts do not change them.
    values = whole.columns["obs"][:, 1]

    def one_step(part_of: object) -> np.ndarray:
        assert isinstance(part_of, type(whole))
        return advantages_and_targets(
            part_of.columns["rewards"],
            values,
            part_of.final_obs[:, 1],
            part_of.segments,
            gamma=0.9,
            lambda_=0.0,
        )[0]

    np.testing.assert_allclose(one_step(joined), one_step(whole), rtol=1e-5, atol=1e-6)


def test_time_steps_of_a_cut_segment_go_on_in_the_next_shard() -> None:
    whole = rollout(np.random.default_rng(0), 1, 1)
    whole = concatenate([whole])
    one = rollout(np.random.default_rng(3), 1, 40)
    first, second = shards(one, 2)
    assert second.segments.t_started[0] == first.segments.t_started[0] + first.rows
    assert second.segments.episode_ids == first.segments.episode_ids
    assert not first.segments.terminated[0]
    assert second.segments.terminated[0] == one.segments.terminated[0]


def test_segments_of_recurrent_modules_stay_whole() -> None:
    whole = rollout(np.random.default_rng(1), 7, 20)
    whole.state_in = {"h": np.arange(7.0)[:, None]}
    parts = shards(whole, 3)
    assert sum(len(part.segments) for part in parts) == 7
    assert sum(part.rows for part in parts) == whole.rows
    assert max(part.rows for part in parts) - min(part.rows for part in parts) <= whole.segments.lengths.max()


def test_each_learner_has_rows_of_each_module() -> None:
    rng = np.random.default_rng(2)
    parts = shards_by_module({"few": rollout(rng, 1, 1), "many": rollout(rng, 5, 30)}, 2)
    assert [sorted(part) for part in parts] == [["few", "many"]] * 2
    assert all(part["few"].rows == 1 for part in parts)  # too few to be shared
