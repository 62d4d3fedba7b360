"""The base class of environments of several agents, copies of single-agent ones, and groups."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from runtime.rllib.env.multi_agent_env import MultiAgentEnv, make_multi_agent
from runtime.rllib.env.vector.sync_vector_multi_agent_env import SyncVectorMultiAgentEnv
from runtime.rllib.env.wrappers.group_agents_wrapper import GROUP_INFO, GROUP_REWARDS

BOX = gymnasium.spaces.Box(0, 1, (2,))
CHOICE = gymnasium.spaces.Discrete(2)


class Three(MultiAgentEnv):
    def __init__(self) -> None:
        self.agents = ["a", "b", "c"]
        super().__init__()
        self.observation_spaces = dict.fromkeys(self.agents, BOX)
        self.action_spaces = dict.fromkeys(self.agents, CHOICE)
        self.taken: list[dict[str, Any]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return {agent: np.full(2, i) for i, agent in enumerate(self.agents)}, {"a": {"x": 1}}

    def step(self, action_dict: dict[str, Any]) -> Any:
        self.taken.append(action_dict)
        obs, _ = self.reset()
        flags = {"a": True, "b": len(self.taken) > 1, "__all__": False}
        return obs, {"a": 1.0, "c": 4.0}, flags, {"__all__": False}, {"b": {"y": 2}}


def test_spaces_of_agents() -> None:
    env = Three()
    assert env.possible_agents == ["a", "b", "c"]
    assert (env.num_agents, env.max_num_agents) == (3, 3)
    assert env.get_action_space("b") is CHOICE
    with pytest.raises(ValueError, match=r"no observation space of agent 'z'.*get_observation_space"):
        env.get_observation_space("z")


def test_spaces_may_be_dict_spaces() -> None:
    env = Three()
    env.observation_spaces = gymnasium.spaces.Dict({"a": BOX})  # type: ignore[assignment]
    assert env.get_observation_space("a") is BOX
    with pytest.raises(ValueError, match="agent 'b'"):
        env.get_observation_space("b")


def test_one_space_may_be_everyones() -> None:
    class Shared(MultiAgentEnv):
        observation_space = BOX
        action_space = gymnasium.spaces.Dict({"a": CHOICE})

    env = Shared()
    assert env.get_observation_space("whoever") is BOX
    assert env.get_action_space("a") is CHOICE
    assert env.agents is not Shared.agents
    with pytest.raises(NotImplementedError, match="Shared must define step"):
        env.step({})


def test_copies_of_an_environment() -> None:
    env = make_multi_agent("CartPole-v1")({"num_agents": 3})
    obs, infos = env.reset(seed=5)
    again, _ = env.reset(seed=5)
    assert list(obs) == list(infos) == [0, 1, 2]
    assert not np.array_equal(obs[0], obs[1]), "each has a seed of its own"
    np.testing.assert_array_equal(obs[2], again[2])
    ended: set[int] = set()
    for _ in range(200):
        acting = {agent: 0 for agent in range(3) if agent not in ended}
        _, rewards, terminateds, truncateds, _ = env.step(acting)
        assert set(rewards) == set(acting)
        ended |= {agent for agent in acting if terminateds[agent]}
        assert terminateds["__all__"] == (len(ended) == 3)
        assert not truncateds["__all__"]
        if terminateds["__all__"]:
            break
    assert ended == {0, 1, 2}
    with pytest.raises(ValueError, match="at least one agent"):
        env.step({})
    env.close()


def test_copies_by_a_function_get_the_configuration() -> None:
    seen = []

    def make(config: dict[str, Any]) -> gymnasium.Env[Any, Any]:
        seen.append(config)
        return gymnasium.make("CartPole-v1")

    env = make_multi_agent(make)({"num_agents": 2, "gravity": 3})
    assert seen == [{"gravity": 3}] * 2
    assert env.possible_agents == [0, 1]
    env.close()


def test_groups_act_as_one() -> None:
    inner = Three()
    env = inner.with_agent_groups({"g": ["a", "b"]})
    assert env.possible_agents == ["g", "c"]
    assert env.get_observation_space("g") == gymnasium.spaces.Tuple([BOX, BOX])
    assert env.get_action_space("c") is CHOICE
    obs, infos = env.reset()
    assert [part.tolist() for part in obs["g"]] == [[0, 0], [1, 1]]
    assert obs["c"].tolist() == [2, 2]
    assert infos == {"g": {GROUP_INFO: [{"x": 1}, {}]}}
    obs, rewards, terminateds, _, infos = env.step({"g": (1, 0), "c": 1})
    assert inner.taken == [{"a": 1, "b": 0, "c": 1}]
    assert rewards == {"g": 1.0, "c": 4.0}
    assert infos["g"] == {GROUP_INFO: [{}, {"y": 2}], GROUP_REWARDS: [1.0, 0.0]}
    assert terminateds == {"g": False, "__all__": False}, "a member goes on"
    assert env.step({"g": (1, 0), "c": 1})[2]["g"]


def test_what_groups_refuse() -> None:
    with pytest.raises(ValueError, match="'a' is in the groups 'g' and 'h'"):
        Three().with_agent_groups({"g": ["a"], "h": ["a"]})
    env = Three().with_agent_groups({"g": ["a", "b"]})
    with pytest.raises(ValueError, match="2 members, but 3 actions"):
        env.step({"g": (1, 0, 1)})

    class Alone(Three):
        def reset(self, **kwargs: Any) -> Any:
            return {"a": np.zeros(2)}, {}

    with pytest.raises(ValueError, match=r"not of \['b'\]"):
        Alone().with_agent_groups({"g": ["a", "b"]}).reset()


def test_a_group_ends_when_its_members_end_differently() -> None:
    class Mixed(Three):
        def step(self, action_dict: dict[Any, Any]) -> Any:
            obs, rewards, _, _, infos = super().step(action_dict)
            return obs, rewards, {"a": True, "b": False}, {"a": False, "b": True}, infos

    env = Mixed().with_agent_groups({"g": ["a", "b"]})
    env.reset()
    _, _, terminateds, truncateds, _ = env.step({"g": (0, 0), "c": 0})
    assert (terminateds["g"], truncateds["g"]) == (True, False), "not all of it was cut"


def test_all_environments_are_closed_though_one_cannot_be() -> None:
    closed = []

    class Closing(Three):
        def close(self) -> None:
            closed.append(self)
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        SyncVectorMultiAgentEnv([Closing, Closing]).close()
    assert len(closed) == 2


def test_environments_are_closed_if_another_one_cannot_be_made() -> None:
    closed = []

    class Closing(Three):
        def close(self) -> None:
            closed.append(self)

    with pytest.raises(TypeError, match="no MultiAgentEnv"):
        SyncVectorMultiAgentEnv([Closing, gymnasium.Env])
    assert len(closed) == 1
