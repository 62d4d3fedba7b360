"""Episodes of one agent: growing, reading, cutting, joining, and their other forms."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from runtime.rllib._core import trees
from runtime.rllib._core.rollout import Rollout, Segments
from runtime.rllib.env.single_agent_episode import SingleAgentEpisode, to_rollout


def episode(steps: int = 4, terminated: bool = False, **more: Any) -> SingleAgentEpisode:
    """Observations 0, 1, ...; actions 10, 11, ...; rewards 0.5, 1.5, ..."""
    result = SingleAgentEpisode("e", **more)
    result.add_env_reset(0, {"i": 0})
    for t in range(steps):
        result.add_env_step(
            t + 1,
            10 + t,
            t + 0.5,
            {"i": t + 1},
            terminated=terminated and t == steps - 1,
            extra_model_outputs={"action_logp": -float(t)},
        )
    return result


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def facts(tested: SingleAgentEpisode) -> dict[str, Any]:
    return {
        "obs": plain(tested.get_observations()),
        "actions": plain(tested.get_actions()),
        "rewards": plain(tested.get_rewards()),
        "infos": tested.get_infos(),
        "logp": plain(tested.get_extra_model_outputs("action_logp")),
        "t": (tested.t_started, tested.t),
        "done": (tested.is_terminated, tested.is_truncated),
    }


def test_an_episode_grows() -> None:
    tested = episode(2, terminated=True)
    assert len(tested) == tested.env_steps() == tested.agent_steps() == 2
    assert facts(tested) == {
        "obs": [0, 1, 2],
        "actions": [10, 11],
        "rewards": [0.5, 1.5],
        "infos": [{"i": 0}, {"i": 1}, {"i": 2}],
        "logp": [0.0, -1.0],
        "t": (0, 2),
        "done": (True, False),
    }
    assert tested.get_return() == 2.0
    assert tested.get_duration_s() >= 0
    assert tested.is_reset
    assert tested.is_done
    assert not tested.is_numpy


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="add_env_reset"):
        SingleAgentEpisode().add_env_step(1, 1, 1.0)
    with pytest.raises(ValueError, match="done"):
        episode(1, terminated=True).add_env_step(1, 1, 1.0)
    with pytest.raises(ValueError, match="reset already"):
        episode(1).add_env_reset(0)
    with pytest.raises(ValueError, match="one observation more"):
        SingleAgentEpisode(observations=[1, 2], actions=[1, 2], rewards=[1.0, 2.0])
    with pytest.raises(ValueError, match="1 actions but 2 rewards"):
        SingleAgentEpisode(observations=[1, 2, 3], actions=[1], rewards=[1.0, 2.0], len_lookback_buffer=0)
    with pytest.raises(KeyError, match="action_logp"):
        episode().get_extra_model_outputs("vf_preds")
    with pytest.raises(TypeError, match="slices"):
        episode()[0]  # type: ignore[index]


def test_given_data_is_lookback_by_default() -> None:
    given = {"observations": [1, 2, 3], "actions": [1, 2], "rewards": [1.0, 2.0]}
    assert len(SingleAgentEpisode(**given)) == 0
    tested = SingleAgentEpisode(**given, len_lookback_buffer=1, t_started=5)
    assert (len(tested), tested.t_started, tested.t) == (1, 5, 6)
    assert tested.get_actions(-1, neg_index_as_lookback=True) == 1
    assert tested.get_observations() == [2, 3]


@pytest.mark.parametrize("as_arrays", [False, True])
def test_getters_and_setters(as_arrays: bool) -> None:
    tested = episode(4, action_space=spaces.Discrete(20))
    if as_arrays:
        assert tested.to_numpy() is tested
        assert tested.is_numpy
    assert plain(tested.get_observations(slice(-2, None))) == [3, 4]
    assert plain(tested.get_rewards(slice(-2, 1), neg_index_as_lookback=True, fill=0.0)) == [0.0, 0.0, 0.5]
    assert plain(tested.get_actions([0, -1])) == [10, 13]
    assert np.asarray(tested.get_actions(1, one_hot_discrete=True)).argmax() == 11
    assert set(tested.get_extra_model_outputs()) == {"action_logp"}
    tested.set_observations(new_data=99, at_indices=-1)
    tested.set_actions(new_data=[1, 2], at_indices=slice(0, 2))
    tested.set_rewards(new_data=[0.0] * 4)
    tested.set_extra_model_outputs(key="action_logp", new_data=7.0, at_indices=0)
    tested.set_extra_model_outputs(key="vf_preds", new_data=[1.0, 2.0, 3.0, 4.0])
    assert plain(tested.get_observations(-1)) == 99
    assert plain(tested.get_actions()) == [1, 2, 12, 13]
    assert tested.get_return() == 0.0
    assert plain(tested.get_extra_model_outputs("action_logp", 0)) == 7.0
    assert plain(tested.get_extra_model_outputs("vf_preds")) == [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(ValueError, match="2 values for 4 steps"):
        tested.set_extra_model_outputs(key="new", new_data=[1.0, 2.0])


def test_infos_are_there_though_nobody_gave_any() -> None:
    tested = SingleAgentEpisode(
        observations=[1, 2, 3], actions=[1, 2], rewards=[1.0, 2.0], len_lookback_buffer=0
    )
    assert not tested.has_infos
    assert tested.get_infos() == [{}, {}, {}]


@given(st.integers(1, 6), st.integers(0, 6), st.booleans(), st.booleans())
def test_cutting_and_joining_gives_the_episode_again(
    first: int, lookback: int, first_numpy: bool, second_numpy: bool
) -> None:
    whole = episode(6)
    one = episode(first)
    two = one.cut(len_lookback_buffer=lookback)
    assert len(two) == 0
    assert (two.t_started, two.id_) == (first, "e")
    seen = min(lookback, first)
    expected = [t + 0.5 for t in range(first - seen, first)]
    assert two.get_rewards(slice(-seen, 0), neg_index_as_lookback=True) == expected
    for t in range(first, 6):
        two.add_env_step(t + 1, 10 + t, t + 0.5, {"i": t + 1}, extra_model_outputs={"action_logp": -float(t)})
    if first_numpy:
        one.to_numpy()
    if second_numpy:
        two.to_numpy()
    one.concat_episode(two)
    assert facts(one) == facts(whole)


def test_what_does_not_follow_is_not_joined() -> None:
    with pytest.raises(ValueError, match="starts at time step 0"):
        episode(2).concat_episode(episode(2))
    with pytest.raises(ValueError, match="is done"):
        episode(2, terminated=True).concat_episode(episode(2))
    other = episode(2).cut()
    other.id_ = "other"
    with pytest.raises(ValueError, match="cannot continue episode e"):
        episode(2).concat_episode(other)
    changed = episode(2).cut()
    changed.set_observations(new_data=5, at_indices=0)
    with pytest.raises(ValueError, match="same observation"):
        episode(2).concat_episode(changed)
    with pytest.raises(ValueError, match="cannot be cut"):
        episode(2, terminated=True).cut()


def test_custom_data_goes_along_as_a_copy() -> None:
    tested = episode(1)
    tested.custom_data["list"] = [1]
    following = tested.cut()
    following.custom_data["list"].append(2)
    assert tested.custom_data == {"list": [1]}


@pytest.mark.parametrize("as_arrays", [False, True])
def test_slices(as_arrays: bool) -> None:
    tested = episode(5, terminated=True)
    if as_arrays:
        tested.to_numpy()
    middle = tested[1:3]
    assert facts(middle) == {
        "obs": [1, 2, 3],
        "actions": [11, 12],
        "rewards": [1.5, 2.5],
        "infos": [{"i": 1}, {"i": 2}, {"i": 3}],
        "logp": [-1.0, -2.0],
        "t": (1, 3),
        "done": (False, False),
    }
    assert tested[-2:].is_terminated
    with_lookback = tested.slice(slice(3, None), len_lookback_buffer=2)
    assert plain(with_lookback.get_actions(slice(-2, 1), neg_index_as_lookback=True)) == [11, 12, 13]
    assert len(tested[2:2]) == 0
    assert plain(tested[2:2].get_observations()) == [2]
    with pytest.raises(ValueError, match="step 2"):
        tested[::2]


def test_columns_and_state() -> None:
    tested = episode(2, terminated=True).to_numpy()
    columns = tested.get_data_dict()
    assert {name: plain(values) for name, values in columns.items()} == {
        "t": [0, 1],
        "eps_id": ["e", "e"],
        "terminateds": [False, True],
        "truncateds": [False, False],
        "obs": [0, 1],
        "infos": [{"i": 0}, {"i": 1}],
        "actions": [10, 11],
        "rewards": [0.5, 1.5],
        "action_logp": [0.0, -1.0],
    }
    assert tested.get_sample_batch()["rewards"].tolist() == [0.5, 1.5]
    again = SingleAgentEpisode.from_state(pickle.loads(pickle.dumps(tested.get_state())))
    assert facts(again) == facts(tested)


# ------------------------------------------------------------ rollouts


def leaf(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    return {"a": rng.normal(size=(rows, 2)).astype(np.float32), "b": (rng.integers(0, 9, rows),)}


segment_ends = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from(["", "terminated", "truncated"])), min_size=1
)


@given(segment_ends, st.integers(0, 2**16), st.booleans(), st.booleans())
def test_a_rollout_becomes_episodes_and_the_same_rollout_again(
    ends: list[tuple[int, str]], seed: int, recurrent: bool, infos: bool
) -> None:
    rng = np.random.default_rng(seed)
    lengths = np.array([steps for steps, _ in ends])
    rows, count = int(lengths.sum()), len(ends)
    columns: dict[str, Any] = {
        "obs": leaf(rng, rows),
        "actions": rng.integers(0, 3, rows),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "action_logp": rng.normal(size=rows).astype(np.float32),
    }
    if recurrent:
        columns["state_out"] = {"h": rng.normal(size=(rows, 3)).astype(np.float32)}
    rollout = Rollout(
        columns,
        Segments(
            lengths,
            np.array([end == "terminated" for _, end in ends]),
            np.array([end == "truncated" for _, end in ends]),
            [f"id{number}" for number in range(count)],
            rng.integers(0, 9, count),
            [f"agent{number}" for number in range(count)] if seed % 2 else None,
        ),
        leaf(rng, count),
        {"h": rng.normal(size=(count, 3)).astype(np.float32)} if recurrent else None,
        [{"row": row} for row in range(rows)] if infos else None,
    )
    episodes = SingleAgentEpisode.views_of(rollout)
    assert [len(each) for each in episodes] == lengths.tolist()
    for each in episodes:
        each.validate()
        assert len(each.get_observations()["a"]) == len(each) + 1
    again = to_rollout(episodes)
    assert again.segments.episode_ids == rollout.segments.episode_ids
    assert again.segments.agent_ids == rollout.segments.agent_ids
    assert again.infos == rollout.infos
    for name in ("lengths", "terminated", "truncated", "t_started"):
        assert getattr(again.segments, name).tolist() == getattr(rollout.segments, name).tolist()
    for one, other in (
        (rollout.columns, again.columns),
        (rollout.final_obs, again.final_obs),
        (rollout.state_in or {}, again.state_in or {}),
    ):
        assert all(np.array_equal(a, b) for a, b in zip(trees.leaves(one), trees.leaves(other), strict=True))


def test_views_share_the_arrays_of_the_rollout() -> None:
    rollout = to_rollout([episode(3).to_numpy(), episode(2).to_numpy()])
    _, second = SingleAgentEpisode.views_of(rollout)
    assert np.shares_memory(second.get_actions(), rollout.columns["actions"])
    assert np.shares_memory(second.get_rewards(), rollout.columns["rewards"])


def test_lookbacks_and_episodes_without_steps_are_left_out_of_a_rollout() -> None:
    one = episode(3)
    two = one.cut(len_lookback_buffer=2)
    assert to_rollout([one, two]).rows == 3
    with pytest.raises(ValueError, match="None of 1 episodes"):
        to_rollout([two])
    two.add_env_step(4, 13, 3.5, extra_model_outputs={"action_logp": -3.0})
    rollout = to_rollout([two])
    assert rollout.columns["obs"].tolist() == [3]
    assert rollout.segments.t_started.tolist() == [3]


def test_chunks_that_are_views_join_with_all_infos() -> None:
    first, second = episode(2), episode(4)[2:]
    rollouts = [to_rollout([first]), to_rollout([second])]
    one, other = (SingleAgentEpisode.views_of(rollout)[0] for rollout in rollouts)
    one.concat_episode(other)
    assert one.get_infos() == [{}, {"i": 1}, {"i": 2}, {"i": 3}, {"i": 4}]


def test_dicts_are_written_by_their_keys() -> None:
    observations = [{"a": np.zeros(1), "b": np.ones(1)}] * 2
    tested = SingleAgentEpisode(observations=observations, actions=[0], rewards=[0.0]).to_numpy()
    tested.set_observations(at_indices=-1, new_data={"b": np.array([3.0]), "a": np.array([2.0])})
    assert {name: value.item() for name, value in tested.get_observations(-1).items()} == {"a": 2, "b": 3}


def test_an_episode_of_a_state_grows_by_itself() -> None:
    tested = episode(2)
    copied = SingleAgentEpisode.from_state(tested.get_state())
    copied.add_env_step(3, 12, 2.5, extra_model_outputs={"action_logp": -2.0})
    copied.custom_data["x"] = 1
    tested.validate()
    assert tested.get_observations() == [0, 1, 2]
    assert not tested.custom_data
