"""A function of the user's evaluates, with the runners for evaluation."""

import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig


class Countdown(gym.Env):
    def __init__(self, config):
        self.observation_space = gym.spaces.Box(0.0, 100.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.start = config["start"]
        self.left = self.start

    def reset(self, *, seed=None, options=None):
        self.left = self.start
        return np.array([self.left], np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.array([self.left], np.float32), 1.0, self.left == 0, False, {}


def evaluate(algorithm, eval_workers):
    lengths = []
    for start in (3, 5):

        def sampled(runner, start=start):
            for each in runner.env.unwrapped.envs:
                each.unwrapped.start = start
            return runner.sample(num_episodes=2, force_reset=True)

        for episodes in eval_workers.foreach_env_runner(sampled):
            lengths.append([len(episode) for episode in episodes])
            print("evaluated", start, [float(episode.get_return()) for episode in episodes])
    steps = sum(sum(each) for each in lengths)
    return {"lengths": lengths}, steps, steps


config = (
    PPOConfig()
    .environment(Countdown, env_config={"start": 4})
    .env_runners(num_env_runners=0)
    .training(train_batch_size_per_learner=32, minibatch_size=32, num_epochs=1)
    .evaluation(
        custom_evaluation_function=evaluate,
        evaluation_interval=2,
        evaluation_num_env_runners=0,
        evaluation_config=PPOConfig.overrides(explore=False),
    )
)
algo = config.build_algo()
for _ in range(2):
    result = algo.train()
    print(result["training_iteration"], "evaluation" in result, result["env_runners"]["episode_len_mean"])
algo.stop()
