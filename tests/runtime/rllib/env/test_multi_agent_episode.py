"""Episodes of several agents: what each item's time step is, and what cutting, slicing and joining keep."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.rllib.env.multi_agent_episode import MultiAgentEpisode, completed
from runtime.rllib.utils.error import MultiAgentEnvError


def one_module(agent_id: Any, episode: Any) -> str:
    return "p"


def turns(lookback: int = 0) -> MultiAgentEpisode:
    """a acts at environment steps 0, 3 and 4, b at all, c comes at 3.

    Each action is 10 times the observation before it.
    """
    return MultiAgentEpisode(
        "e",
        observations=[
            {"a": 0, "b": 0},
            {"b": 1},
            {"b": 2},
            {"a": 3, "b": 3, "c": 3},
            {"a": 4, "b": 4, "c": 4},
        ],
        actions=[{"a": 0, "b": 0}, {"b": 10}, {"b": 20}, {"a": 30, "b": 30, "c": 30}],
        rewards=[
            {"a": 0.5, "b": 1.0},
            {"a": 0.25, "b": 1.0, "c": 7.0},
            {"a": 0.25, "b": 1.0},
            {"a": 2.0, "b": 1, "c": 3},
        ],
        extra_model_outputs=[
            {"a": {"x": 0}, "b": {"x": 0}},
            {"b": {"x": 1}},
            {"b": {"x": 2}},
            {agent: {"x": 3} for agent in "abc"},
        ],
        len_lookback_buffer=lookback,
        agent_to_module_mapping_fn=one_module,
    )


def test_items_by_environment_step() -> None:
    episode = turns()
    assert len(episode) == episode.env_steps() == 4
    assert episode.agent_steps() == 7
    assert episode.get_observations() == {"a": [0, 3, 4], "b": [0, 1, 2, 3, 4], "c": [3, 4]}
    assert episode.get_observations(return_list=True)[1:4] == [{"b": 1}, {"b": 2}, {"a": 3, "b": 3, "c": 3}]
    assert episode.get_observations(-1) == {"a": 4, "b": 4, "c": 4}
    assert episode.get_observations(1) == {"b": 1}
    assert episode.get_observations(slice(1, 3)) == {"b": [1, 2]}
    assert episode.get_observations([0, 3], agent_ids=["a", "c"]) == {"a": [0, 3], "c": [3]}
    assert episode.get_actions(-1) == {"a": 30, "b": 30, "c": 30}
    assert episode.get_actions(-2) == {"b": 20}
    assert episode.get_rewards() == {"a": [1.0, 2.0], "b": [1.0] * 4, "c": [3.0]}
    assert episode.get_rewards(return_list=True)[0] == {"a": 1.0, "b": 1.0}, "where the agent acted"
    assert episode.get_extra_model_outputs("x", 3) == {"a": 3, "b": 3, "c": 3}
    assert episode.get_extra_model_outputs(return_list=True)[1] == {"b": {"x": 1}}
    assert episode.get_infos(0) == {"a": {}, "b": {}}


def test_items_by_the_agents_own_steps() -> None:
    episode = turns()
    assert episode.get_observations(-1, env_steps=False) == {"a": 4, "b": 4, "c": 4}
    assert episode.get_rewards(slice(0, 2), agent_ids="a", env_steps=False) == {"a": [1.0, 2.0]}
    with pytest.raises(ValueError, match="env_steps=True"):
        episode.get_rewards(env_steps=False, return_list=True)


def test_fill_stands_for_what_is_outside() -> None:
    episode = turns()
    assert episode.get_observations([3, 4, 5], fill=-9) == {"a": [3, 4, -9], "b": [3, 4, -9], "c": [3, 4, -9]}
    assert episode.get_actions(slice(-1, 1), agent_ids="b", neg_index_as_lookback=True, fill=-9) == {
        "b": [-9, 0]
    }


def test_returns() -> None:
    episode = turns()
    assert episode.get_return() == 10.0
    assert episode.get_return(include_hanging_rewards=True) == 17.0, "c's reward before it came"
    assert episode.agent_returns() == {"a": 3.0, "b": 4.0, "c": 10.0}


def test_who_acts() -> None:
    episode = turns()
    assert episode.get_agents_to_act() == episode.get_agents_that_stepped() == {"a", "b", "c"}
    episode.add_env_step({"a": 5, "b": 5}, {"a": 40, "b": 40, "c": 40}, {"a": 1.0}, terminateds={"a": True})
    assert episode.get_agents_that_stepped() == {"a", "b"}
    assert episode.get_agents_to_act() == {"b"}
    assert episode.get_terminateds() == {"a": True, "b": False, "c": False, "__all__": False}
    assert not episode.is_done


def test_an_agent_that_ends_without_observation_gets_its_last_one_again() -> None:
    episode = turns()
    episode.add_env_step({"b": 5}, {"a": 40, "b": 40, "c": 40}, {"c": 1.0}, truncateds={"c": True})
    assert episode.agent_episodes["c"].get_observations() == [3, 4, 4]
    assert episode.agent_episodes["c"].is_truncated
    episode.add_env_step({"b": 6}, {"b": 50}, {"a": 5.0}, terminateds={"__all__": True})
    assert episode.is_terminated
    assert episode.agent_episodes["a"].get_rewards() == [1.0, 2.0, 5.0]
    assert episode.agent_episodes["b"].get_observations(-1) == 6
    assert not episode.agent_episodes["c"].is_terminated, "it had ended before"


def test_what_an_episode_refuses() -> None:
    episode = turns()
    with pytest.raises(MultiAgentEnvError, match="reset already"):
        episode.add_env_reset(observations={"a": 0})
    episode.add_env_step({"a": 5, "b": 5}, {"a": 40, "b": 40}, {}, terminateds={"a": True})
    with pytest.raises(MultiAgentEnvError, match="'a' had terminated"):
        episode.add_env_step({"a": 6}, {"b": 50}, {})
    with pytest.raises(MultiAgentEnvError, match=r"'b' got an observation .* did not act"):
        episode.add_env_step({"b": 6}, {}, {})
    done = MultiAgentEpisode(
        observations=[{"a": 0}, {"a": 1}], actions=[{"a": 0}], rewards=[{"a": 0}], terminateds=True
    )
    with pytest.raises(MultiAgentEnvError, match="is done"):
        done.add_env_step({}, {}, {})
    with pytest.raises(ValueError, match="cannot be cut"):
        done.cut()
    with pytest.raises(KeyError, match="no agent 'z'"):
        episode.set_rewards(new_data={"z": [1.0]})


def test_a_cut_takes_hanging_steps_along() -> None:
    episode = turns()
    episode.add_env_step({"b": 5}, {"a": 40, "b": 40, "c": 40}, {"a": 0.5, "b": 1.0})
    rest = episode.cut()
    assert episode.get_return(include_hanging_rewards=True) == 10.0 + 1.0 + 7.0
    assert (len(rest), rest.env_t_started, rest.id_) == (0, 5, "e")
    assert rest.get_agents_to_act() == {"b"}
    assert rest.get_observations() == {"b": [5]}
    rest.add_env_step({"a": 6, "b": 6}, {"b": 50}, {"a": 0.25, "b": 1.0})
    assert rest.agent_episodes["a"].get_rewards() == [0.75]
    assert rest.agent_episodes["a"].get_actions() == [40]
    assert rest.agent_episodes["a"].t_started == 2
    assert len(rest.agent_episodes["c"]) == 0


def test_a_cut_keeps_a_lookback_of_environment_steps() -> None:
    rest = turns().cut(2)
    assert rest.get_observations(slice(-2, 1), neg_index_as_lookback=True) == {
        "a": [3, 4],
        "b": [2, 3, 4],
        "c": [3, 4],
    }
    assert rest.get_actions(-1, neg_index_as_lookback=True) == {"a": 30, "b": 30, "c": 30}
    assert rest.get_actions() == {}
    assert len(rest.agent_episodes["b"]) == 0


def test_agents_that_ended_are_not_in_the_next_chunk() -> None:
    episode = turns()
    episode.add_env_step({"a": 5, "b": 5, "c": 5}, dict.fromkeys("abc", 40), {}, terminateds={"a": True})
    rest = episode.cut()
    assert rest.agent_ids == {"b", "c"}
    with pytest.raises(MultiAgentEnvError, match="'a'"):
        rest.add_env_step({"a": 6}, {"b": 50, "c": 50}, {})


def test_joined_chunks_are_the_whole() -> None:
    whole, first = turns(), turns()
    more: list[tuple[Any, ...]] = [
        ({"b": 5}, {"a": 40, "b": 40, "c": 40}, {"a": 0.5, "b": 1.0}),
        ({"a": 6, "b": 6}, {"b": 50}, {"a": 0.25, "b": 1.0}),
        ({"a": 7, "c": 7}, {"a": 60, "b": 60}, {"c": 1.0}),
    ]
    rest = None
    for number, (obs, actions, rewards) in enumerate(more):
        outputs = {agent: {"x": number} for agent in actions}
        whole.add_env_step(obs, actions, rewards, extra_model_outputs=outputs)
        if number == 1:
            rest = first.cut()
        (first if rest is None else rest).add_env_step(obs, actions, rewards, extra_model_outputs=outputs)
    assert rest is not None
    first.concat_episode(rest)
    assert first.get_observations(return_list=True) == whole.get_observations(return_list=True)
    assert first.get_rewards(return_list=True) == whole.get_rewards(return_list=True)
    assert first.get_return(True) == whole.get_return(True)
    with pytest.raises(ValueError, match="starts at environment step"):
        first.concat_episode(rest)
    with pytest.raises(ValueError, match="cannot continue episode"):
        first.concat_episode(MultiAgentEpisode("other"))


def test_slices() -> None:
    episode = turns()
    part = episode[1:3]
    assert part.agent_episodes["a"].get_observations() == [3]
    assert part.agent_episodes["b"].get_observations() == [1, 2, 3]
    assert part.agent_episodes["b"].get_rewards() == [1.0, 1.0]
    assert part.agent_episodes["c"].get_observations() == [3]
    assert (part.env_t_started, len(part)) == (1, 2)
    start = episode[:2]
    assert start.agent_episodes["a"].get_observations() == [0]
    assert start.agent_episodes["a"].get_actions() == []
    assert start.get_return(True) == 3.0, "a's step hangs: its action is in the slice"
    assert "c" not in start.agent_ids
    assert episode[2:].get_observations() == {"a": [3, 4], "b": [2, 3, 4], "c": [3, 4]}
    with_lookback = episode.slice(slice(3, 4), len_lookback_buffer=2)
    assert with_lookback.get_observations(-2, neg_index_as_lookback=True) == {"b": 1}
    assert with_lookback.get_actions() == {"a": [30], "b": [30], "c": [30]}
    with pytest.raises(ValueError, match="step 2"):
        episode[::2]
    with pytest.raises(TypeError, match="slices"):
        episode[1]  # type: ignore[index]


def test_a_lookback_lies_before_the_chunk() -> None:
    episode = turns(lookback=2)
    assert len(episode) == 2
    assert episode.env_t == 2
    assert episode.get_observations() == {"a": [3, 4], "b": [2, 3, 4], "c": [3, 4]}
    assert episode.get_observations(-2, neg_index_as_lookback=True) == {"a": 0, "b": 0}


def test_arrays() -> None:
    episode = turns().to_numpy()
    assert episode.is_numpy
    rewards = episode.get_rewards(agent_ids="a")["a"]
    assert isinstance(rewards, np.ndarray)
    assert rewards.tolist() == [1.0, 2.0]
    episode.set_rewards(new_data={"a": np.array([5.0, 6.0])})
    assert episode.get_rewards(0, agent_ids="a") == {"a": 5.0}
    episode.set_extra_model_outputs(key="y", new_data={"c": np.array([8])})
    assert episode.get_extra_model_outputs("y", -1, "c") == {"c": 8}


def test_batches_of_agents() -> None:
    batch = turns().get_sample_batch()
    assert batch.env_steps() == 4
    assert batch.agent_steps() == 7
    assert list(batch["a"]["rewards"]) == [1.0, 2.0]


def test_state() -> None:
    episode = turns()
    episode.add_env_step(
        {"b": 5},
        {"a": 40, "b": 40, "c": 40},
        {"a": 0.5},
        extra_model_outputs={agent: {"x": 4} for agent in "abc"},
    )
    episode.custom_data["note"] = 1
    other = MultiAgentEpisode.from_state(pickle.loads(pickle.dumps(episode.get_state())))
    assert other.custom_data == {"note": 1}
    for one in (episode, other):
        one.add_env_step({"a": 6}, {"b": 50}, {"a": 1.0}, extra_model_outputs={"b": {"x": 5}})
    assert other.get_rewards(return_list=True) == episode.get_rewards(return_list=True)
    assert other.module_for("a") == "p"


def test_the_mapping_is_asked_once_per_agent() -> None:
    asked = []

    def mapping(agent_id: str, episode: MultiAgentEpisode) -> str:
        asked.append(agent_id)
        return f"m{len(asked)}"

    episode = MultiAgentEpisode(agent_to_module_mapping_fn=mapping)
    episode.add_env_reset(observations={"a": 0, "b": 0})
    episode.add_env_step({"a": 1, "b": 1}, {"a": 0, "b": 0}, {})
    assert episode.module_for("b") == "m2"
    assert episode.cut().module_for("a") == "m1"
    assert asked == ["a", "b"]
    assert {m: [part.agent_id for part in parts] for m, parts in completed([episode]).items()} == {
        "m1": ["a"],
        "m2": ["b"],
    }
    assert MultiAgentEpisode().module_for("x") == "default_policy"


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    turns().print()
    assert capsys.readouterr().out.splitlines() == [
        "ts 0   1   2   3   4",
        "a  x           x   x",
        "b  x   x   x   x   x",
        "c              x   x",
    ]


@given(st.lists(st.tuples(st.sets(st.sampled_from("abc")), st.booleans()), max_size=15), st.integers(0, 3))
def test_chunks_hold_what_the_whole_holds(plan: list[tuple[set[str], bool]], lookback: int) -> None:
    whole = MultiAgentEpisode("e")
    chunks = [MultiAgentEpisode("e")]
    for one in (whole, chunks[0]):
        one.add_env_reset(observations={"a": 0})
    for step, (agents, is_cut) in enumerate(plan, start=1):
        actions = dict.fromkeys(whole.get_agents_to_act(), step)
        assert chunks[-1].get_agents_to_act() == set(actions)
        for one in (whole, chunks[-1]):
            one.add_env_step(dict.fromkeys(sorted(agents), step), actions, dict.fromkeys("abc", 1.0))
        if is_cut:
            chunks.append(chunks[-1].cut(lookback))
    assert sum(chunk.get_return(True) for chunk in chunks) == whole.get_return(True) == 3.0 * len(plan)
    first, *others = chunks
    for chunk in others:
        first.concat_episode(chunk)
    for get in ("observations", "actions", "rewards"):
        wanted = getattr(whole, f"get_{get}")(return_list=True)
        assert getattr(first, f"get_{get}")(return_list=True) == wanted


def test_an_agent_hangs_in_a_slice_though_it_ends_later() -> None:
    episode = MultiAgentEpisode(
        observations=[{"a": 0, "b": 0}, {"b": 1}, {"b": 2}, {"a": 3, "b": 3}],
        actions=[{"a": 5, "b": 0}, {"b": 1}, {"b": 2}],
        rewards=[{"a": 1.0}, {}, {}],
        terminateds={"a": True, "b": False},
        len_lookback_buffer=0,
    )
    part = episode[1:2]
    assert part.agent_ids == {"a", "b"}
    assert part.get_return() == 0
    assert part.get_return(include_hanging_rewards=True) == 1


def test_rewards_of_an_agent_that_has_ended_belong_to_its_last_step() -> None:
    episode = MultiAgentEpisode()
    episode.add_env_reset(observations={"a": 0, "b": 0})
    episode.add_env_step({"b": 1}, {"a": 0, "b": 0}, {"a": 1.0}, terminateds={"a": True})
    episode.add_env_step({"b": 2}, {"b": 0}, {"a": 10.0, "b": 2.0})
    assert episode.agent_episodes["a"].get_rewards() == [11.0]
    assert episode.get_return() == 13.0


def test_an_episode_of_a_state_grows_by_itself() -> None:
    tested = MultiAgentEpisode()
    tested.add_env_reset(observations={"a": 0})
    MultiAgentEpisode.from_state(tested.get_state()).add_env_step({"a": 1}, {"a": 0}, {"a": 1.0})
    tested.validate()
    assert tested.get_observations() == {"a": [0]}
