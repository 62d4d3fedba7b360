"""A callback moves the environments to a harder task when the returns are good enough."""

import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback


class Corridor(gym.Env):
    """Every action goes on; the way's length is the task."""

    def __init__(self, config):
        self.observation_space = gym.spaces.Box(0.0, 100.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.length = config["length"]
        self.place = 0

    def set_length(self, length):
        self.length = length

    def reset(self, *, seed=None, options=None):
        self.place = 0
        return np.array([0.0], np.float32), {}

    def step(self, action):
        self.place += 1
        return np.array([self.place], np.float32), 1.0, self.place >= self.length, False, {}


class Curriculum(RLlibCallback):
    def on_algorithm_init(self, *, algorithm, metrics_logger=None, **kwargs):
        algorithm._length = 2

    def on_train_result(self, *, algorithm, metrics_logger=None, result, **kwargs):
        result["length_of_this_iteration"] = algorithm._length
        if result["env_runners"]["episode_return_max"] < algorithm._length or algorithm._length >= 8:
            return
        algorithm._length *= 2
        length = algorithm._length
        algorithm.env_runner_group.foreach_env_runner(
            lambda runner: [each.unwrapped.set_length(length) for each in runner.env.unwrapped.envs]
        )


config = (
    PPOConfig()
    .environment(Corridor, env_config={"length": 2})
    .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
    .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
    .callbacks(Curriculum)
)
algo = config.build_algo()
for _ in range(4):
    result = algo.train()
    print(
        result["training_iteration"],
        result["length_of_this_iteration"],
        int(result["env_runners"]["episode_len_max"]),
    )
print([each.unwrapped.length for each in algo.env_runner.env.unwrapped.envs])
algo.stop()
