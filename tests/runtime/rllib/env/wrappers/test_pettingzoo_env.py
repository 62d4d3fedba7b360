"""Environments of the PettingZoo package, really run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
pytest.importorskip("torch")

from pettingzoo.test.example_envs import generated_agents_env_v0, generated_agents_parallel_v0
from pettingzoo.utils import parallel_to_aec

from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from runtime.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv, PettingZooEnv


def play(env: Any, steps: int) -> dict[str, Any]:
    """Random actions; returns what happened."""
    obs, _ = env.reset(seed=3)
    seen, rewards, over = set(obs), 0.0, False
    acting = dict(obs)
    taken = 0
    while not over and taken < steps:
        taken += 1
        for agent, observation in acting.items():
            assert env.get_observation_space(agent).contains(observation)
        actions = {agent: env.get_action_space(agent).sample() for agent in acting}
        obs, given, terminateds, truncateds, _ = env.step(actions)
        rewards += sum(given.values())
        seen |= set(obs)
        acting = {a: o for a, o in obs.items() if not (terminateds.get(a) or truncateds.get(a))}
        over = terminateds["__all__"] or truncateds["__all__"]
        if over:
            assert not env.agents
        assert over or acting
    return {
        "seen": seen,
        "rewards": rewards,
        "over": over,
        "steps": taken,
        "flags": (terminateds, truncateds),
    }


def test_agents_that_take_turns_come_and_leave() -> None:
    env = PettingZooEnv(generated_agents_env_v0.env(max_cycles=40))
    assert len(env.reset(seed=1)[0]) == 1, "the agent whose turn it is"
    found = play(env, 2000)
    assert found["over"]
    assert found["flags"][1]["__all__"], "the limit of cycles"
    assert len(found["seen"]) > 5, "some came later"
    env.close()


def test_agents_that_act_at_once_come_and_leave() -> None:
    env = ParallelPettingZooEnv(generated_agents_parallel_v0.parallel_env(max_cycles=20))
    found = play(env, 100)
    assert found["over"]
    assert found["steps"] == 21
    assert len(found["seen"]) > 5
    env.close()


def test_runners_step_through_them() -> None:
    def make(config: Any) -> PettingZooEnv:
        return PettingZooEnv(parallel_to_aec(generated_agents_parallel_v0.parallel_env(max_cycles=8)))

    config = (
        PPOConfig()
        .environment(make)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=1)
        .multi_agent(
            policies={"type0", "type1", "type2"},
            policy_mapping_fn=lambda agent, episode, **kwargs: agent.split("_")[0],
        )
        .debugging(seed=1)
    )
    # Its agents' spaces differ in each episode, so no module could act: actions are random.
    config.get_multi_rl_module_spec = no_modules  # type: ignore[method-assign]
    runner = MultiAgentEnvRunner(config=config)
    runner.config.get_multi_rl_module_spec = no_modules
    episodes = runner.sample(num_episodes=2, random_actions=True)
    for episode in episodes:
        assert episode.is_done
        steps = episode.get_observations(return_list=True)
        assert [len(obs) for obs in steps[:-6]] == [1] * (len(steps) - 6), "one agent at a time"
        assert all(np.isfinite(part.get_return()) for part in episode.agent_episodes.values())


def no_modules(**kwargs: Any) -> Any:
    raise NotImplementedError
