"""Which row has which reward, and which rows make a segment."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.rllib._core.agents import AgentEpisode, Lane, RowTable, batch_of
from runtime.rllib._core.rollout import Rollout


class Game:
    """An episode whose agents a, b, ... are of one module. An action is the number of the agent's actions before."""

    def __init__(self, *agents: str, initial_state: Any = None) -> None:
        self.table = RowTable("m", initial_state)
        self.episode = AgentEpisode("e", lambda agent, obs: Lane(agent, f"e/{agent}", self.table, obs))
        self.episode.reset({agent: [0.0] for agent in agents})

    def act(self) -> list[str]:
        lanes = self.episode.acting
        if lanes:
            columns = {
                "obs": batch_of([lane.obs for lane in lanes]),
                "actions": np.array([lane.steps for lane in lanes]),
            }
            row = self.table.append(columns, len(lanes))
            for number, lane in enumerate(lanes):
                lane.act(row + number, None if lane.state is None else lane.state + 1)
        return [lane.agent_id for lane in lanes]

    def step(
        self, obs: dict[str, float], rewards: dict[str, float], ends: Any = None, cuts: Any = None
    ) -> bool:
        self.act()
        flags = [dict.fromkeys(given or (), True) for given in (ends, cuts)]
        return self.episode.step({agent: [value] for agent, value in obs.items()}, rewards, *flags)

    def cut(self, *, keep: bool = True) -> Rollout | None:
        return self.table.cut(list(self.episode.lanes.values()), keep=keep)


def segments(rollout: Rollout | None) -> dict[str, dict[str, Any]]:
    """By agent, of rollouts with one segment each."""
    assert rollout is not None
    result = {}
    parts = rollout.segments
    for number, start in enumerate(parts.starts):
        rows = slice(start, start + parts.lengths[number])
        assert parts.agent_ids is not None
        assert parts.agent_ids[number] not in result
        result[parts.agent_ids[number]] = {
            "obs": rollout.columns["obs"][rows, 0].tolist(),
            "actions": rollout.columns["actions"][rows].tolist(),
            "rewards": rollout.columns["rewards"][rows].tolist(),
            "final": rollout.final_obs[number, 0].item(),
            "end": (bool(parts.terminated[number]), bool(parts.truncated[number])),
            "t": int(parts.t_started[number]),
        }
    return result


def test_agents_that_act_at_once() -> None:
    game = Game("a", "b")
    game.step({"a": 1, "b": 11}, {"a": 0.5, "b": 2})
    game.step({"a": 2, "b": 12}, {"a": 0.25, "b": 3})
    assert segments(game.cut()) == {
        "a": {
            "obs": [0, 1],
            "actions": [0, 1],
            "rewards": [0.5, 0.25],
            "final": 2,
            "end": (False, False),
            "t": 0,
        },
        "b": {
            "obs": [0, 11],
            "actions": [0, 1],
            "rewards": [2, 3],
            "final": 12,
            "end": (False, False),
            "t": 0,
        },
    }


def test_rewards_between_an_agents_actions_belong_to_the_last_one() -> None:
    game = Game("a")
    game.step({"b": 1}, {"a": 1})  # the turn is b's, which appears
    game.step({"a": 2}, {"a": 10, "b": 5})
    game.step({"b": 3}, {"a": 100, "b": 6})
    over = game.step({"a": 4}, {"a": 1000, "b": 7}, ends=["__all__"])
    assert over
    found = segments(game.cut())
    assert found["a"]["rewards"] == [11, 1100]
    assert found["a"]["obs"] == [0, 2]
    assert found["a"]["final"] == 4
    assert found["b"]["rewards"] == [11, 7]
    assert found["b"]["final"] == 3, "an agent that ends without an observation gets its last one again"
    assert found["b"]["end"] == (True, False)


def test_rewards_before_the_first_action_have_no_row() -> None:
    game = Game("a")
    game.step({"a": 1}, {"a": 1, "b": 7})
    game.step({"a": 2, "b": 2}, {"a": 1, "b": 8})
    game.step({"a": 3, "b": 3}, {"a": 1, "b": 9})
    assert segments(game.cut())["b"]["rewards"] == [9]
    assert game.episode.returns() == {"a": 3, "b": 24}


def test_a_step_that_is_not_complete_moves_to_the_next_fragment() -> None:
    game = Game("a", "b")
    game.step({"b": 1}, {"a": 1, "b": 1})
    first = segments(game.cut())
    assert set(first) == {"b"}
    game.step({"b": 2}, {"a": 2, "b": 1})
    assert set(segments(game.cut())) == {"b"}
    game.step({"a": 3, "b": 3}, {"a": 4, "b": 1})
    game.step({"a": 4, "b": 4}, {"a": 8, "b": 1})
    last = segments(game.cut())
    assert last["a"] == {
        "obs": [0, 3],
        "actions": [0, 1],
        "rewards": [7, 8],
        "final": 4,
        "end": (False, False),
        "t": 0,
    }
    assert last["b"]["t"] == 2
    assert game.cut() is None


def test_an_agent_that_ends_early_stays_ended() -> None:
    game = Game("a", "b")
    assert not game.step({"a": 1, "b": 1}, {"a": 1, "b": 1}, ends=["b"])
    assert game.act() == ["a"]
    with pytest.raises(ValueError, match=r"'b' got an observation after"):
        game.episode.step({"b": [1.0]}, {}, {}, {})


def test_a_late_reward_belongs_to_the_last_action() -> None:
    game = Game("a", "b")
    game.step({"a": 1}, {"b": 1}, ends=["b"])
    game.step({"a": 2}, {"b": 2})
    assert segments(game.cut())["b"]["rewards"] == [3]
    game.step({"a": 3}, {"b": 4})
    assert "b" not in segments(game.cut()), "its rows are delivered"
    assert game.episode.returns()["b"] == 7


@pytest.mark.parametrize(
    ("ends", "cuts", "expected"),
    [
        (["__all__"], [], (True, False)),
        ([], ["__all__"], (False, True)),
        (["__all__"], ["a"], (False, True)),
        (["a"], ["__all__"], (True, False)),
        (["a"], ["a"], (True, True)),
    ],
)
def test_an_agents_own_flag_goes_before_everyones(ends: Any, cuts: Any, expected: Any) -> None:
    game = Game("a", "b")
    game.step({"a": 1, "b": 1}, {}, ends=ends, cuts=cuts)
    assert segments(game.cut())["a"]["end"] == expected


def test_the_episode_is_over_when_all_agents_have_ended() -> None:
    game = Game("a", "b")
    assert not game.step({"b": 1}, {}, ends=["a"])
    assert game.step({}, {}, cuts=["b"])


def test_episodes_that_are_not_kept_are_lost() -> None:
    game = Game("a", "b")
    game.step({"a": 1, "b": 1}, {}, ends=["b"])
    assert set(segments(game.cut(keep=False))) == {"b"}
    assert game.table.cut([]) is None


def test_states_of_recurrent_modules() -> None:
    game = Game("a", "b", initial_state=np.zeros(1))
    for _ in range(3):
        game.step({"a": 1, "b": 1}, {})
    game.step({"b": 1}, {})
    assert game.cut().state_in.tolist() == [[0.0], [0.0]]
    game.step({"a": 1, "b": 1}, {})
    rollout = game.cut()
    assert rollout.segments.agent_ids == ["a", "b"]
    assert rollout.state_in.tolist() == [[3.0], [4.0]], "a's open step moved on with the state before it"


def test_an_environment_may_use_its_arrays_again() -> None:
    table = RowTable("m")
    seen = np.zeros(1, np.float32)
    episode = AgentEpisode("e", lambda agent, obs: Lane(agent, agent, table, obs))
    episode.reset({"a": seen})
    for number in (1, 2):
        lane = episode.acting[0]
        lane.act(table.append({"obs": batch_of([lane.obs])}, 1))
        seen[0] = number
        episode.step({"a": seen}, {}, {"a": number == 2}, {})
    seen[0] = 9
    rollout = table.cut([*episode.lanes.values()])
    assert rollout is not None
    assert rollout.columns["obs"][:, 0].tolist() == [0, 1]
    assert rollout.final_obs.tolist() == [[2]]


def test_batches_are_narrow() -> None:
    assert batch_of([[1.0, 2.0]]).dtype == np.float32
    assert batch_of([3]).dtype == np.int64
    nested = batch_of([{"x": np.zeros(2), "y": (1, 2)}] * 3)
    assert nested["x"].shape == (3, 2)
    assert nested["y"][1].tolist() == [2, 2, 2]


AGENTS = "abc"
steps = st.fixed_dictionaries(
    {
        "obs": st.sets(st.sampled_from(AGENTS)),
        "rewards": st.dictionaries(st.sampled_from(AGENTS), st.integers(-4, 4)),
        "ends": st.sets(st.sampled_from(AGENTS)),
        "cut": st.booleans(),
    }
)


@given(
    st.sets(st.sampled_from(AGENTS), min_size=1),
    st.lists(st.tuples(steps, st.integers(0, 5)), min_size=1, max_size=20),
)
def test_every_agents_rewards_sum_to_what_the_environment_gave(
    first: set[str], plan: list[tuple[dict[str, Any], int]]
) -> None:
    game = Game(*sorted(first))
    given_sum: dict[str, float] = defaultdict(float)
    in_rows: dict[str, float] = defaultdict(float)
    next_t: dict[str, int] = defaultdict(int)
    late: dict[str, float] = defaultdict(float)

    def take(rollout: Rollout | None) -> None:
        if rollout is None:
            return
        starts = rollout.segments.starts
        for number, agent in enumerate(rollout.segments.agent_ids or ()):
            rows = slice(starts[number], starts[number] + rollout.segments.lengths[number])
            in_rows[agent] += float(rollout.columns["rewards"][rows].sum())
            assert rollout.segments.t_started[number] == next_t[agent]
            assert rollout.columns["actions"][rows].tolist() == list(
                range(next_t[agent], next_t[agent] + rollout.segments.lengths[number])
            )
            next_t[agent] += int(rollout.segments.lengths[number])

    over = False
    delivered: set[str] = set()
    for step, luck in plan:
        lanes = game.episode.lanes
        ended = {agent for agent, lane in lanes.items() if lane.ended}
        for agent, reward in step["rewards"].items():
            given_sum[agent] += reward
            if agent in delivered:
                late[agent] += reward
        obs = dict.fromkeys(sorted(step["obs"] - ended), 1.0)
        over = game.step(obs, step["rewards"], ends=step["ends"] if luck == 0 else ())
        if step["cut"]:
            take(game.cut())
            delivered = {agent for agent, lane in lanes.items() if lane.ended}
        if over:
            break
    if not over:
        game.step({}, {}, ends=["__all__"])
    take(game.cut())
    early = game.episode.early_rewards
    for agent in AGENTS:
        assert given_sum[agent] == in_rows[agent] + early.get(agent, 0) + late[agent]
        assert given_sum[agent] == game.episode.returns().get(agent, 0)
        assert next_t[agent] == (game.episode.lanes[agent].steps if agent in game.episode.lanes else 0)
