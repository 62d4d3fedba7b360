from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from runtime.rllib.algorithms.on_policy import TrainBatch, collected_rollouts
from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.env.multi_agent_env import make_multi_agent


def config(**runners: Any) -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2, **runners)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .training(train_batch_size_per_learner=200, minibatch_size=100, num_epochs=1)
        .debugging(seed=1, log_level="ERROR")
    )


@pytest.fixture
def built() -> Iterator[list[Any]]:
    algorithms: list[Any] = []
    yield algorithms
    for algo in algorithms:
        algo.stop()


def test_a_train_batch_has_the_steps_that_the_config_says(built: list[Any]) -> None:
    algo = config().build_algo()
    built.append(algo)
    batch = collected_rollouts(algo.env_runner_group, algo.config)
    assert 200 <= batch.env_steps < 200 + 2
    assert batch.rollouts["default_policy"].rows == batch.env_steps
    assert set(batch.data(algo.config)) == {"rollouts"}


def test_complete_episodes_are_not_cut(built: list[Any]) -> None:
    algo = config(batch_mode="complete_episodes").build_algo()
    built.append(algo)
    batch = collected_rollouts(algo.env_runner_group, algo.config)
    segments = batch.rollouts["default_policy"].segments
    assert batch.env_steps >= 200
    assert (segments.terminated | segments.truncated).all()
    assert (segments.t_started == 0).all()


def test_steps_can_be_those_of_agents(built: list[Any]) -> None:
    algo = (
        config()
        .environment(make_multi_agent("CartPole-v1"), env_config={"num_agents": 3})
        .multi_agent(policies={"p"}, policy_mapping_fn=lambda *_, **__: "p", count_steps_by="agent_steps")
        .build_algo()
    )
    built.append(algo)
    batch = collected_rollouts(algo.env_runner_group, algo.config)
    assert batch.rollouts["p"].rows >= 200
    assert batch.env_steps < 200


def test_connectors_get_episodes_if_there_are_some() -> None:
    connected = config().training(learner_connector=lambda *_: None)
    batch = TrainBatch({}, ["episode"], [], 1)
    assert batch.data(config()) == {"rollouts": {}}
    assert batch.data(connected) == {"episodes": ["episode"]}
    assert TrainBatch({}, None, [], 1).data(connected) == {"rollouts": {}}
