"""Episodes as bytes, one per segment."""

import msgspec
import numpy as np
import pytest

from runtime.rllib._core.rollout import Rollout, Segments
from runtime.rllib.offline.episode_files import decode_episodes, encode_segments


def rollout():
    segments = Segments(
        np.array([2, 3]), np.array([True, False]), np.array([False, True]), ["a", "b"], np.array([0, 7])
    )
    obs = np.arange(20, dtype=np.float32).reshape(5, 4)
    return Rollout(
        {"obs": obs, "actions": np.arange(5), "rewards": np.ones(5, np.float32), "action_logp": np.zeros(5)},
        segments,
        -np.ones((2, 4), np.float32),
    )


def test_a_rollout_survives():
    original = rollout()
    back = decode_episodes(encode_segments(original, "default_policy"))
    assert back.segments.episode_ids == ["a", "b"]
    assert back.segments.lengths.tolist() == [2, 3]
    assert back.segments.terminated.tolist() == [True, False]
    assert back.segments.truncated.tolist() == [False, True]
    assert back.segments.t_started.tolist() == [0, 7]
    for name, column in original.columns.items():
        np.testing.assert_array_equal(back.columns[name], column)
        assert back.columns[name].dtype == column.dtype
    np.testing.assert_array_equal(back.final_obs, original.final_obs)


def test_nested_observations_survive():
    flat = rollout()
    tree = {"x": flat.columns["obs"], "y": [flat.columns["obs"] + 1]}
    nested = Rollout(
        {**flat.columns, "obs": tree}, flat.segments, {"x": flat.final_obs, "y": [flat.final_obs]}
    )
    back = decode_episodes(encode_segments(nested))
    np.testing.assert_array_equal(back.columns["obs"]["y"][0], tree["y"][0])


def test_steps_that_are_listed_and_a_lookback_are_read():
    state = msgspec.msgpack.decode(encode_segments(rollout())[0])

    def listed(values):
        return {"data": values, "lookback": 1, "finalized": False, "space": None}

    def array(*values):
        data = np.array(values).tobytes()
        return {b"nd": True, b"type": "<f8", b"kind": b"", b"shape": [len(values)], b"data": data}

    state["observations"] = listed([array(9.0, 9.0), array(0.0, 0.0), array(1.0, 1.0), array(2.0, 2.0)])
    state["actions"] = listed([9, 0, 1])
    state["rewards"] = listed([9.0, 0.5, 1.5])
    state["extra_model_outputs"] = None
    back = decode_episodes([msgspec.msgpack.encode(state)])
    assert back.columns["obs"].tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert back.final_obs.tolist() == [[2.0, 2.0]]
    assert back.columns["actions"].tolist() == [0, 1]
    assert back.columns["rewards"].tolist() == [0.5, 1.5]


def test_what_is_no_episode_is_refused():
    with pytest.raises(ValueError, match="no recorded episode"):
        decode_episodes([b"\x80"])
    with pytest.raises(ValueError, match="no episode with a step"):
        decode_episodes([])
