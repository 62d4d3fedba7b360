"""The small environments of examples."""

from __future__ import annotations

import pytest

gymnasium = pytest.importorskip("gymnasium")

from runtime.rllib.examples.envs.classes.multi_agent import MultiAgentStatelessCartPole
from runtime.rllib.examples.envs.classes.random_env import RandomEnv
from runtime.rllib.examples.envs.classes.repeat_after_me_env import RepeatAfterMeEnv
from runtime.rllib.examples.envs.classes.stateless_cartpole import StatelessCartPole


def test_stateless_cartpole_hides_the_velocities() -> None:
    env = StatelessCartPole()
    observation, _ = env.reset(seed=1)
    assert observation.shape == env.observation_space.shape == (2,)
    assert env.observation_space.contains(env.step(0)[0])


def test_agents_have_environments_of_their_own() -> None:
    env = MultiAgentStatelessCartPole({"num_agents": 2})
    observations, _ = env.reset(seed=1)
    assert {agent: each.shape for agent, each in observations.items()} == {0: (2,), 1: (2,)}


def test_repeating_earns_the_reward() -> None:
    env = RepeatAfterMeEnv({"repeat_delay": 0, "episode_len": 5})
    observation, _ = env.reset(seed=1)
    for step in range(5):
        observation, reward, _, truncated, _ = env.step(observation)
        assert reward == 1.0
        assert truncated is (step == 4)
    observation, _ = env.reset()
    assert env.step(1 - observation)[1] == -1.0


def test_a_random_environment_keeps_to_its_spaces_and_length() -> None:
    env = RandomEnv({"p_terminated": 0.0, "max_episode_len": 3, "check_action_bounds": True})
    env.reset(seed=1)
    ends = [env.step(0)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    with pytest.raises(ValueError, match="not in Discrete"):
        env.step(7)


def test_static_samples_are_the_same_in_each_step() -> None:
    env = RandomEnv({"static_samples": True, "observation_space": gymnasium.spaces.Discrete(1000)})
    first, _ = env.reset()
    assert {int(env.step(0)[0]) for _ in range(5)} == {int(first)}
