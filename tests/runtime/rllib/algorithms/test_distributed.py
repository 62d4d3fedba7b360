"""Algorithms with actors, and in experiments."""

from __future__ import annotations

import pathlib
import threading
import warnings
from typing import Any

import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import runtime
from runtime import tune
from runtime.rllib.algorithms._algorithm.evaluation import EvaluationError
from runtime.rllib.algorithms.algorithm import Algorithm
from runtime.rllib.algorithms.ppo.ppo import PPO, PPOConfig
from runtime.rllib.callbacks.callbacks import RLlibCallback


def small() -> PPOConfig:
    return (
        PPOConfig()
        .environment("registered-cart-pole")
        .env_runners(num_env_runners=0)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .training(train_batch_size_per_learner=64, minibatch_size=64, num_epochs=1)
    )


class Lengths(RLlibCallback):
    recreated: list[int] = []

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        metrics_logger.log_value("length", len(episode), window=10)

    def on_env_runners_recreated(self, *, env_runner_indices: list[int], **kwargs: Any) -> None:
        self.recreated.extend(env_runner_indices)


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    tune.register_env("registered-cart-pole", lambda config: CartPoleEnv())


def test_runners_in_actors_beside_evaluation(session: Any, tmp_path: pathlib.Path) -> None:
    config = small().env_runners(num_env_runners=1).callbacks(Lengths)
    config.evaluation(
        evaluation_interval=1,
        evaluation_num_env_runners=1,
        evaluation_parallel_to_training=True,
        evaluation_duration="auto",
        evaluation_duration_unit="timesteps",
    )
    algo = config.build_algo()
    try:
        result = algo.train()
        assert result["env_runners"]["length"] > 5
        assert result["evaluation"]["num_env_steps_sampled_for_evaluation_this_iter"] >= 100
        assert result["fault_tolerance"]["num_healthy_workers"] == 1
        runtime.kill(algo.env_runner_group._actors.handle(1))
        while not Lengths.recreated:  # each call is bounded by sample_timeout_s
            result = algo.train()
        assert Lengths.recreated == [1]
        assert result["fault_tolerance"]["num_env_runners_recreated_lifetime"] == 1
        assert result["env_runners"]["num_env_steps_sampled_lifetime"] >= 128
        path = algo.save_to_path(tmp_path)
    finally:
        algo.stop()
    again = Algorithm.from_checkpoint(path)
    try:
        assert again.training_iteration >= 2
        assert again.train()["env_runners"]["num_env_steps_sampled_lifetime"] >= 192
    finally:
        again.stop()


def test_an_error_in_training_ends_the_evaluation_beside_it(session: Any) -> None:
    class Failing(PPO):
        def training_step(self) -> None:
            raise KeyError("mine")

    config = small().evaluation(
        evaluation_interval=1,
        evaluation_num_env_runners=1,
        evaluation_parallel_to_training=True,
        evaluation_duration="auto",
        evaluation_duration_unit="timesteps",
    )
    algo = Failing(config=config)
    try:
        with pytest.raises(KeyError, match="mine"):
            algo.train()
        assert "evaluation" not in [each.name for each in threading.enumerate()]
    finally:
        algo.stop()


def test_an_experiment_by_name(session: Any, tmp_path: pathlib.Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grid = tune.Tuner(
            "PPO",
            param_space=small().training(lr=tune.grid_search([1e-3, 1e-4])),
            tune_config=tune.TuneConfig(max_concurrent_trials=1, reuse_actors=True),
            run_config=tune.RunConfig(
                storage_path=str(tmp_path),
                stop={"env_runners/num_env_steps_sampled_lifetime": 100},
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True),
                verbose=0,
            ),
        ).fit()
    assert not grid.errors
    assert sorted(result.config["lr"] for result in grid) == [1e-4, 1e-3]
    for result in grid:
        assert result.metrics["training_iteration"] == 2
        assert result.metrics["env_runners"]["num_env_steps_sampled_lifetime"] >= 128
    again = PPO.from_checkpoint(grid[0].checkpoint)
    assert (again.training_iteration, again.config.lr) == (2, grid[0].config["lr"])
    again.stop()


def test_evaluations_without_results_are_counted(session: Any) -> None:
    config = small().evaluation(
        evaluation_interval=1,
        evaluation_num_env_runners=1,
        evaluation_sample_timeout_s=0.0,
        evaluation_error_after_n_consecutive_skips=2,
    )
    algo = config.build_algo()
    try:
        assert algo.train()["evaluation"]["num_env_steps_sampled_for_evaluation_this_iter"] == 0
        with pytest.raises(EvaluationError, match=r"evaluation_sample_timeout_s=0\.0"):
            algo.train()
    finally:
        algo.stop()
