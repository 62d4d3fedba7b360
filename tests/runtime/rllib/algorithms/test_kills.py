"""Runners that are killed at random moments of a training: it goes on, and learns."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

import runtime as ray
from runtime.rllib.algorithms.appo import APPOConfig
from runtime.rllib.algorithms.ppo import PPOConfig
from tests.polling import eventually

KILLS = int(os.environ.get("RLLIB_KILLS", "4"))


@pytest.fixture
def cluster() -> Iterator[None]:
    ray.init(num_cpus=3)
    yield
    ray.shutdown()


def pids(group: Any) -> list[int]:
    found: list[int] = group.foreach_env_runner(lambda runner: os.getpid(), local_env_runner=False)
    return found


def ppo() -> Any:
    settings = {"lr": 1e-3, "train_batch_size_per_learner": 1024, "minibatch_size": 256, "num_epochs": 10}
    return PPOConfig().training(**settings).reporting(min_time_s_per_iteration=0)


def appo() -> Any:
    return (
        APPOConfig()
        .training(lr=1e-3, train_batch_size_per_learner=512)
        .learners(num_learners=0)
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=2048)
    )


@pytest.mark.parametrize(("make", "good"), [(ppo, 150), (appo, 60)])
def test_runners_are_killed_at_random_and_the_training_learns(
    cluster: None, make: Callable[[], Any], good: float
) -> None:
    """`RLLIB_KILLS=50` for a long one."""
    config = (
        make()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=2, num_envs_per_env_runner=4)
        .fault_tolerance(restart_failed_env_runners=True)
        .debugging(seed=1)
    )
    chance = random.Random(1)
    algorithm = config.build_algo()
    try:
        group = algorithm.env_runner_group
        killed, iterations, best = 0, 0, 0.0
        while killed < KILLS or (best < good and iterations < 60):
            if killed < KILLS and chance.random() < 0.7:
                victims = pids(group)
                if victims:
                    os.kill(chance.choice(victims), signal.SIGKILL)
                    killed += 1
            before = algorithm.metrics.peek("num_env_steps_sampled_lifetime", default=0)
            result = algorithm.train()
            iterations += 1
            assert result["num_env_steps_sampled_lifetime"] > before
            best = max(best, result["env_runners"].get("episode_return_mean", 0.0))
        assert best >= good, f"mean return {best} after {iterations} iterations"
        assert eventually(lambda: len(pids(group)) == 2, 30.0)
        assert group.num_remote_worker_restarts() >= KILLS
    finally:
        algorithm.stop()
