"""Callbacks and when they come."""

from collections import Counter

import gymnasium as gym
import numpy as np
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback

seen = Counter()


class Five(gym.Env):
    """Five steps, a point each."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t / 5, np.float32), 1.0, self.t == 5, False, {}


class Counts(RLlibCallback):
    def on_algorithm_init(self, *, algorithm, metrics_logger=None, **kwargs):
        seen["algorithm_init"] += 1

    def on_episode_start(self, *, episode, metrics_logger, **kwargs):
        seen["start"] += 1
        assert episode.t == 0

    def on_episode_step(self, *, episode, **kwargs):
        seen["step"] += 1

    def on_episode_end(self, *, episode, metrics_logger, **kwargs):
        seen["end"] += 1
        assert episode.is_done
        metrics_logger.log_value("my_length", len(episode), reduce="mean", window=10)
        seen[f"return {episode.get_return()}"] += 1

    def on_sample_end(self, *, samples, **kwargs):
        seen["sample_end"] += 1

    def on_train_result(self, *, algorithm, result, **kwargs):
        seen["train_result"] += 1
        result["mine"] = 42


ray.init(num_cpus=2, log_to_driver=False)
config = (
    PPOConfig()
    .environment(Five)
    .env_runners(num_env_runners=0)
    .training(train_batch_size_per_learner=50, minibatch_size=50, num_epochs=1)
    .callbacks(Counts)
    .reporting(min_time_s_per_iteration=0)
)
algo = config.build_algo()
result = algo.train()
print(result["mine"], result["env_runners"]["my_length"], result["env_runners"]["episode_return_mean"])
print(seen["algorithm_init"], seen["train_result"], seen["end"], seen["step"], seen["return 5.0"])
algo.stop()
ended = []
config = config.copy(copy_frozen=False).callbacks(
    on_episode_end=lambda episode, **kwargs: ended.append(len(episode))
)
algo = config.build_algo()
algo.train()
print(len(ended), set(ended))
algo.stop()
