from __future__ import annotations

import numpy as np
import pytest

from runtime.rllib._core.rollout import Rollout, Segments
from runtime.rllib.algorithms.dreamerv3.sequence_replay import SequenceReplay


def fragment(episode: int, first: int, length: int, *, ends: bool) -> Rollout:
    """Steps of an episode whose observations are 100 * episode + time, and whose actions and rewards are the time."""
    times = np.arange(first, first + length)
    return Rollout(
        {
            "obs": np.float32(100 * episode + times)[:, None],
            "actions": times,
            "rewards": times.astype(np.float32),
        },
        Segments(np.array([length]), np.array([ends]), np.array([False]), [str(episode)], np.array([first])),
        np.float32([[100 * episode + first + length]]),
    )


def test_a_row_has_what_led_to_its_observation() -> None:
    replay = SequenceReplay(1000, np.random.default_rng(1))
    replay.add(fragment(1, 0, 3, ends=False))
    replay.add(fragment(1, 3, 2, ends=True))
    assert replay.rows == 6  # five steps have six observations
    for _ in range(20):
        batch = replay.sample(4, 9)
        obs, first = batch["obs"][..., 0], batch["is_first"]
        time = obs - 100
        assert (batch["prev_actions"] == np.where(time > 0, time - 1, 0)).all()
        assert (batch["rewards"] == batch["prev_actions"]).all()
        assert (batch["is_terminated"] == (time == 5)).all()
        assert first[:, 0].all()
        # Within a sequence either time goes on, or an episode begins.
        assert (np.diff(time)[~first[:, 1:]] == 1).all()
        assert (time[:, 1:][first[:, 1:]] == 0).all()


def test_every_row_is_the_start_of_a_sequence_with_equal_probability() -> None:
    replay = SequenceReplay(1000, np.random.default_rng(2))
    replay.add(fragment(0, 0, 9, ends=True))
    replay.add(fragment(1, 0, 4, ends=True))
    starts = replay.sample(6000, 1)["obs"].ravel()
    values, counts = np.unique(starts, return_counts=True)
    assert values.tolist() == [*range(10), *range(100, 105)]
    assert (abs(counts - 400) < 100).all()


def test_the_oldest_episodes_are_dropped_beyond_the_capacity() -> None:
    replay = SequenceReplay(12, np.random.default_rng(3))
    for episode in range(4):
        replay.add(fragment(episode, 0, 4, ends=True))
    assert replay.rows == 10
    assert set(replay.sample(200, 1)["obs"].ravel() // 100) == {2, 3}


def test_long_episodes_grow() -> None:
    replay = SequenceReplay(10_000, np.random.default_rng(4))
    for first in range(0, 500, 50):
        replay.add(fragment(0, first, 50, ends=False))
    assert replay.rows == 501
    sequence = replay.sample(1, 600)
    assert (np.diff(sequence["obs"][0, :, 0])[~sequence["is_first"][0, 1:]] == 1).all()


def test_an_empty_buffer_has_no_sequences() -> None:
    with pytest.raises(ValueError, match="no episodes"):
        SequenceReplay(10, np.random.default_rng(5)).sample(1, 1)
