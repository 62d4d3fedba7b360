"""Rows and segments are drawn once per epoch."""

import numpy as np
import pytest

from runtime.rllib._core.rollout import Rollout, Segments, concatenate
from runtime.rllib._core.row_sampler import RowSampler


def make(lengths, seed=0):
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    count = len(lengths)
    ends = rng.integers(0, 3, count)
    return Rollout(
        {
            "obs": np.arange(rows, dtype=np.float32)[:, None],
            "actions": np.arange(rows),
            "rewards": np.ones(rows),
        },
        Segments(
            np.array(lengths), ends == 1, ends == 2, [str(i) for i in range(count)], np.zeros(count, np.int64)
        ),
        -1.0 - np.arange(count, dtype=np.float32)[:, None],
    )


def test_an_epoch_of_rows_has_each_row_once_with_what_came_after_it():
    rollout = make([3, 1, 5])
    sampler = RowSampler(rollout, np.random.default_rng(1))
    parts = [sampler.rows(4), sampler.rows(4), sampler.rows(4)]
    assert [len(part["actions"]) for part in parts] == [4, 4, 1]
    assert sampler.rows_left == 0
    drawn = np.concatenate([part["actions"] for part in parts])
    assert sorted(drawn) == list(range(9))
    assert drawn.tolist() != list(range(9))
    for part in parts:
        index = part["actions"]
        np.testing.assert_array_equal(part["new_obs"], rollout.next_obs()[index])
        np.testing.assert_array_equal(part["terminateds"], rollout.terminateds()[index])
        np.testing.assert_array_equal(part["truncateds"], rollout.truncateds()[index])
    assert sorted(sampler.rows(9)["actions"]) == list(range(9))  # the next epoch


@pytest.mark.parametrize("seed", range(20))
def test_an_epoch_of_segments_has_each_row_once_and_cut_segments_go_on(seed):
    rng = np.random.default_rng(seed)
    rollout = make(rng.integers(1, 9, 7).tolist(), seed)
    sampler = RowSampler(rollout, rng)
    pieces = [sampler.segments(5)]
    while sampler.segments_left:
        pieces.append(sampler.segments(int(rng.integers(1, 9))))
    everything = concatenate(pieces)
    assert sorted(everything.columns["actions"]) == list(range(rollout.rows))
    for piece in pieces:
        index = piece.columns["actions"]
        np.testing.assert_array_equal(piece.next_obs(), rollout.next_obs()[index])
        np.testing.assert_array_equal(piece.terminateds(), rollout.terminateds()[index])
        np.testing.assert_array_equal(piece.truncateds(), rollout.truncateds()[index])
        starts = piece.columns["actions"][piece.segments.starts]
        begin = rollout.segments.starts[[int(name) for name in piece.segments.episode_ids]]
        np.testing.assert_array_equal(piece.segments.t_started, starts - begin)


def test_a_draw_gives_exactly_its_rows_while_the_epoch_lasts():
    sampler = RowSampler(make([4, 4, 4]), np.random.default_rng(0))
    assert [sampler.segments(6).rows for _ in range(2)] == [6, 6]
    assert sampler.segments(100).rows == 12
