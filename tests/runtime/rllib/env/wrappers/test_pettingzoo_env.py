"""Environments of the PettingZoo package, really run."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("pettingzoo")
pytest.importorskip("torch")

from pettingzoo import ParallelEnv
from pettingzoo.test.example_envs import generated_agents_env_v0, generated_agents_parallel_v0
from pettingzoo.utils import parallel_to_aec

from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.env.multi_agent_env import MultiAgentEnv
from runtime.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from runtime.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv, PettingZooEnv


class Countdown(ParallelEnv):  # type: ignore[misc]
    """Agent k ends at step k + 1; the last one is cut. An observation is the step, a reward the step times the action.

    With `at_once`, all end together: a by itself, b by the limit.
    """

    metadata = {"name": "countdown"}

    def __init__(self, at_once: bool = False) -> None:
        self.possible_agents = ["a", "b"]
        self.render_mode = None
        self.at_once = at_once

    def observation_space(self, agent: str) -> Any:
        return gymnasium.spaces.Box(0, 10, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.t = [*self.possible_agents], 0
        return self._seen()

    def _seen(self) -> Any:
        return {a: np.array([self.t], np.float32) for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions: Any) -> Any:
        self.t += 1
        obs, infos = self._seen()
        rewards = {agent: float(self.t * actions[agent]) for agent in self.agents}
        ends = {agent: agent == "a" and self.t >= 1 + self.at_once for agent in self.agents}
        cuts = {agent: agent == "b" and self.t == 2 for agent in self.agents}
        self.agents = [agent for agent in self.agents if not (ends[agent] or cuts[agent])]
        return obs, rewards, ends, cuts, infos


def test_turns() -> None:
    env = PettingZooEnv(parallel_to_aec(Countdown()))
    assert env.possible_agents == ["a", "b"]
    assert env.observation_spaces.keys() == {"a", "b"}  # type: ignore[union-attr]
    obs, _ = env.reset(seed=1)
    assert list(obs) == ["a"]
    obs, rewards, terminateds, truncateds, _ = env.step({"a": 1})
    assert list(obs) == ["b"]
    obs, rewards, terminateds, truncateds, _ = env.step({"b": 1})
    assert obs["a"].tolist() == [1.0], "a's last observation"
    assert list(obs) == ["a", "b"], "and b goes on"
    assert rewards == {"a": 1.0, "b": 1.0}
    assert terminateds == {"a": True, "b": False, "__all__": False}
    assert env.agents == ["b"]
    obs, rewards, terminateds, truncateds, _ = env.step({"b": 1})
    assert rewards == {"b": 2.0}
    assert truncateds == {"b": True, "__all__": True}
    assert not terminateds["__all__"]
    assert env.agents == []
    env.close()


def test_all_at_once() -> None:
    env = ParallelPettingZooEnv(Countdown(at_once=True))
    assert list(env.reset()[0]) == ["a", "b"]
    assert not env.step({"a": 0, "b": 0})[2]["__all__"]
    _, rewards, terminateds, truncateds, _ = env.step({"a": 1, "b": 0})
    assert rewards == {"a": 2.0, "b": 0.0}
    assert terminateds == {"a": True, "b": False, "__all__": True}, "not all were cut"
    assert truncateds == {"a": False, "b": True, "__all__": False}
    env.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: PettingZooEnv(generated_agents_env_v0.env()),
        lambda: ParallelPettingZooEnv(generated_agents_parallel_v0.parallel_env()),
    ],
)
def test_agents_that_nobody_announced(make: Any) -> None:
    env: MultiAgentEnv = make()
    obs, _ = env.reset(seed=3)
    seen, acting = set(obs), dict(obs)
    for _ in range(150):
        for agent, observation in acting.items():
            assert env.get_observation_space(agent).contains(observation)
        actions = {agent: env.get_action_space(agent).sample() for agent in acting}
        obs, _, terminateds, truncateds, _ = env.step(actions)
        assert not terminateds["__all__"]
        assert not truncateds["__all__"]
        seen |= set(obs)
        acting = {a: o for a, o in obs.items() if not (terminateds[a] or truncateds[a])}
        assert acting
    assert len(seen) > 6
    env.close()


def test_runners_step_through_them() -> None:
    config = (
        PPOConfig()
        .environment(lambda context: PettingZooEnv(parallel_to_aec(Countdown())))
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .multi_agent(policies={"a", "b"}, policy_mapping_fn=lambda agent, episode, **kwargs: agent)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .debugging(seed=1)
    )
    runner = MultiAgentEnvRunner(config=config)
    episodes = runner.sample(num_episodes=4)
    for episode in episodes:
        assert episode.is_truncated
        a, b = episode.agent_episodes["a"], episode.agent_episodes["b"]
        assert a.is_terminated
        assert b.is_truncated
        assert a.get_rewards().tolist() == a.get_actions().tolist()
        assert b.get_rewards().tolist() == [b.get_actions(0), 2 * b.get_actions(1)]
        assert b.get_observations()[:, 0].tolist() == [0, 1, 2]
        assert len(episode) == 3, "a turn each, then b alone"
    collected = runner.collect(episodes=4)
    assert {module_id: rollout.rows for module_id, rollout in collected.rollouts.items()} == {"a": 4, "b": 8}
