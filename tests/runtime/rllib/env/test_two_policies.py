"""Two policies that train in one environment, from end to end."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from runtime.rllib.algorithms.ppo import PPOConfig
from runtime.rllib.connectors.env_to_module.mean_std_filter import MeanStdFilter
from runtime.rllib.core.rl_module.rl_module import RLModule
from runtime.rllib.env.multi_agent_env import make_multi_agent


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors are slower with more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def config_of() -> PPOConfig:
    config: PPOConfig = (
        PPOConfig()
        .environment(make_multi_agent("CartPole-v1"), env_config={"num_agents": 2})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .multi_agent(policies={"p0", "p1"}, policy_mapping_fn=lambda agent, episode, **kwargs: f"p{agent}")
        .rl_module(model_config={"fcnet_hiddens": [16]})
        .training(train_batch_size_per_learner=128, minibatch_size=64, num_epochs=1)
        .debugging(seed=1)
    )
    return config


def weights(algo: Any) -> dict[str, Any]:
    return {m: algo.get_module(m).get_state() for m in ("p0", "p1")}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


def test_both_learn_and_a_checkpoint_has_both(tmp_path: pathlib.Path) -> None:
    algo = config_of().build_algo()
    before = weights(algo)
    result = algo.train()
    after = weights(algo)
    assert not same(before["p0"], after["p0"])
    assert not same(before["p1"], after["p1"])
    assert {"p0", "p1"} <= result["learners"].keys()
    assert result["env_runners"]["num_env_steps_sampled_lifetime"] >= 128
    runner = algo.env_runner
    assert all(
        same(runner.module[m].get_state(), {k: after[m][k] for k in runner.module[m].get_state()})
        for m in after
    )
    algo.save_to_path(tmp_path / "c")
    algo.stop()
    module = RLModule.from_checkpoint(tmp_path / "c" / "learner_group" / "learner" / "rl_module" / "p1")
    assert same(after["p1"], module.get_state())


def test_only_some_train() -> None:
    algo = config_of().multi_agent(policies_to_train=["p1"]).build_algo()
    before = weights(algo)
    algo.train()
    after = weights(algo)
    assert same(before["p0"], after["p0"])
    assert not same(before["p1"], after["p1"])
    algo.stop()


def test_connectors_between_agents_and_modules() -> None:
    config = config_of().env_runners(
        env_to_module_connector=lambda *args, **kwargs: MeanStdFilter(multi_agent=True)
    )
    algo = config.build_algo()
    algo.train()
    runner = algo.env_runner
    collected = runner.collect(env_steps=200)
    for rollout in collected.rollouts.values():
        assert abs(float(rollout.columns["obs"].mean())) < 1
        assert 0.3 < float(rollout.columns["obs"].std()) < 3, "normalized: raw ones are ten times smaller"
        assert rollout.columns["action_logp"].shape == (rollout.rows,)
    algo.stop()
